"""The security of the clusters that a command connects to: `--config FILE`, the environment, or none.

A command is a process, so there is one choice; `app.run` makes it before the command begins. Files are read when a
connection is first made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from cyclopts import Parameter

from ottla.cli.exits import FAILED, MISUSED, CommandFailed
from ottla.cli.values import FilePath

if TYPE_CHECKING:
    from ottla.client.security import Security, SecurityFailure

ENVIRONMENT: Final = "OTTLA_CLIENT_"
SOURCE_ENVIRONMENT: Final = "OTTLA_MIRROR_FROM_"
"""Prefix of the variables for the cluster that a mirror reads."""
VARIABLE: Final = "OTTLA_CLIENT_CONFIG"

ClientFile = Annotated[
    FilePath | None,
    Parameter(
        name=["--config", "--command-config"],
        help="The client's settings, such as security.protocol: a file with Kafka's or librdkafka's names. Default: "
        "the file that OTTLA_CLIENT_CONFIG names.",
    ),
]
OnlyCommandConfig = Annotated[
    FilePath | None,
    Parameter(
        name="--command-config",
        help="The client's settings, such as security.protocol: a file with Kafka's or librdkafka's names. Default: "
        "the file that OTTLA_CLIENT_CONFIG names.",
    ),
]
"""For commands whose --config is another file."""
SourceFile = Annotated[
    FilePath | None,
    Parameter(
        name="--from-config",
        help="The same for the source cluster; settings with the prefix source. in the file of --config do as well.",
    ),
]

T = TypeVar("T")

_typed: Path | None = None
_typed_source: Path | None = None
_found: dict[str, Security] = {}


def use(config: Path | None, source: Path | None = None) -> None:
    """From now on connections are made as these files say, where they are given."""
    global _typed, _typed_source
    _typed, _typed_source = config, source
    _found.clear()


def use_source() -> None:
    """From now on the cluster to connect to is the one that a mirror reads. Raises CommandFailed."""
    _found[""] = of_source()


def typed() -> Path | None:
    """The file of --config."""
    return _typed


def bootstrap_of_file() -> str | None:
    """`bootstrap.servers` of the file that was typed or that the environment names. Raises CommandFailed."""
    named = _typed or os.environ.get(VARIABLE)
    if not named:
        return None
    from ottla.client.properties import read_file
    from ottla.client.security_settings import sides_of

    return _checked(lambda: sides_of(read_file(named)).target.get("bootstrap.servers")) or None


def current() -> Security:
    """The security of the cluster of --bootstrap. Raises CommandFailed."""
    if "" not in _found:
        _found[""] = _of_environment() if _typed is None else _checked(_of_file)
    return _found[""]


def of_users() -> Security:
    """The same for a program whose users log in: the settings need not have a login. Raises CommandFailed."""
    from ottla.client.properties import read_file, security_from
    from ottla.client.security_settings import sides_of

    def read() -> Security:
        own = None if _typed is None else sides_of(read_file(_typed)).target
        return security_from(own, needs_login=False)

    return _checked(read)


def of_file(file: Path) -> Security:
    """The security that a file of settings asks for. Raises CommandFailed."""
    from ottla.client.properties import read_file, security_from
    from ottla.client.security_settings import sides_of

    return _checked(lambda: security_from(sides_of(read_file(file)).target))


def of_controllers(file: Path | None) -> Security | None:
    """The security of the source's controllers, by a file of their own. Raises CommandFailed."""
    if file is None:
        return None
    from ottla.client.properties import security_of_file

    return _checked(lambda: security_of_file(file))


def _of_environment() -> Security:
    if not any(name.startswith(ENVIRONMENT) for name in os.environ):
        from ottla.client.security import PLAINTEXT

        return PLAINTEXT  # without the modules that read settings
    from ottla.client.properties import security_from

    return _checked(security_from)


def _of_file() -> Security:
    from ottla.client.properties import read_file, security_from
    from ottla.client.security_settings import sides_of

    assert _typed is not None
    return security_from(sides_of(read_file(_typed)).target)


def of_source() -> Security:
    """The security of the cluster that a mirror reads; nothing of the other cluster's is sent there. Raises
    CommandFailed."""
    from ottla.client.properties import read_file, replaced, security_from
    from ottla.client.security_settings import normalized, sides_of

    def read() -> Security:
        beside = normalized(sides_of(read_file(_typed)).source) if _typed is not None else {}
        own = normalized(read_file(_typed_source)) if _typed_source is not None else {}
        return security_from(replaced(beside, own), prefix=SOURCE_ENVIRONMENT)

    if "source" not in _found:
        _found["source"] = _checked(read)
    return _found["source"]


def _checked(read: Callable[[], T]) -> T:
    from ottla.client.security_settings import WrongSecurity

    try:
        return read()
    except WrongSecurity as error:
        where = f"{_typed}: " if _typed is not None and str(_typed) not in str(error) else ""
        raise CommandFailed(f"{where}{error}", MISUSED) from None


def failed(failure: SecurityFailure) -> CommandFailed:
    """A refusal as a command's error."""
    return CommandFailed(failure.sentence, FAILED)
