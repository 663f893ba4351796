"""The security of a source or sink: options `kafka.*`, a file of the driver (`client.config`), the environment.

The driver reads it all, the files of certificates too: what travels to the executors needs no file there. A secret that
is not in an option is in no plan of a query; one that is, Spark hides as its `spark.redaction.regex` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.client.properties import read_file, replaced, settings_of
from ottla.client.security import Security, SecurityFailure
from ottla.client.security_settings import WrongSecurity, is_security, normalized, security_of

CLIENT_CONFIG: Final = "client.config"
_PREFIX: Final = "kafka."


def security_option(options: Mapping[str, str]) -> Security:
    """`options` by names in lower case. Raises ValueError, whose text begins with the option's name."""
    given = {
        name.removeprefix(_PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(_PREFIX) and is_security(name.removeprefix(_PREFIX))
    }
    file = options.get(CLIENT_CONFIG)
    try:
        of_file = {} if file is None else normalized(read_file(str(file).strip()))
    except WrongSecurity as error:
        raise ValueError(f"{CLIENT_CONFIG}: {error}") from None
    try:
        return security_of(settings_of(replaced(of_file, normalized(given)))).carried()
    except WrongSecurity as error:
        raise ValueError(f"{_PREFIX}{error}") from None
    except SecurityFailure as error:
        raise ValueError(f"{_PREFIX}ssl: {error}") from None
