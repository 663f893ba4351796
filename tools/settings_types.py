"""Writes src/ottla/config/typed.py from the table of settings: `python -m tools.settings_types FILE`.

Without a file it writes to standard output. A test fails when the file in the repository is not what this gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ottla.config import definitions
from ottla.config.setting import Setting, Type
from ottla.config.tables.without_effect import why
from tools.pages import write_page

HEAD = '''\
"""The settings of a node as typed attributes: `num_partitions` for `num.partitions`.

Made by `python -m tools.settings_types src/ottla/config/typed.py`; never edited. Left out are settings without effect,
those of TLS and logins, which may differ by listener (`listener_settings.py` reads them), and those for which
`ServerConfig` has an attribute of the same name that says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.config.secret import Secret


class TypedSettings(Mapping[str, Any]):
    """`EffectiveConfig` and `ServerConfig` read an attribute from the table when it is first asked for. As a mapping it
    has every setting of the table by its name."""

    if TYPE_CHECKING:
'''

PARSED = frozenset({
    "listeners", "advertised.listeners", "inter.broker.listener.name", "log.dirs", "metadata.log.dir",
    "cordoned.log.dirs",
})  # fmt: skip
"""Settings for which `ServerConfig` has an attribute of the same name that says more."""

OF_LISTENERS = ("ssl.", "sasl.")

_TYPES = {
    Type.BOOLEAN: "bool", Type.STRING: "str", Type.CLASS: "str", Type.INT: "int", Type.SHORT: "int", Type.LONG: "int",
    Type.DOUBLE: "float", Type.LIST: "tuple[str, ...]", Type.PASSWORD: "Secret",
}  # fmt: skip


def document() -> str:
    """The whole module."""
    return HEAD + "".join(_attributes())


def _attributes() -> Iterator[str]:
    for name, setting in sorted(definitions.BROKER.items()):
        if why(name) is None and name not in PARSED and not name.startswith(OF_LISTENERS):
            yield f"        {name.replace('.', '_')}: {_type(setting)}\n"


def _type(setting: Setting) -> str:
    is_optional = setting.default is None and not setting.required
    return f"{_TYPES[setting.type]} | None" if is_optional else _TYPES[setting.type]


if __name__ == "__main__":
    write_page(document(), sys.argv[1:])
