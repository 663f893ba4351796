"""What a setting is: a name with a type, a default, a check and the way it may change while a node runs.

Values travel as text (properties file, `--set`, environment, metadata records); `Setting.parse` makes the typed value
and refuses what Kafka refuses, with Kafka's sentences (`ConfigDef.parseType`).
"""

from __future__ import annotations

import enum
import math
import re
from typing import NamedTuple

from ottla.config.checks import Check, Value, invalid, java_text


class Type(enum.IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs' `config_type`."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Mode(enum.Enum):
    """How a broker's setting may change at run time (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_BITS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}
_COMMA = re.compile(r"\s*,\s*")
_DECIMAL = re.compile(r"[+-]?[0-9]+")
_ALLOWED = {
    Type.BOOLEAN: "true or false",
    Type.DOUBLE: "a number",
    Type.LIST: "a comma-separated list",
    Type.CLASS: "a class name",
}


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    type: Type
    default: str | None
    check: Check | None = None
    mode: Mode = Mode.READ_ONLY
    doc: str = ""
    internal: bool = False
    """Accepted, but neither documented nor shown by DescribeConfigs (Kafka's `defineInternal`)."""
    required: bool = False
    """Kafka has no default and refuses to start without it."""

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def allowed(self) -> str:
        """The values it accepts, for an error message or a table."""
        if self.check is not None:
            return str(self.check)
        if self.type in _BITS:
            bits = _BITS[self.type]
            return f"an integer from {-(1 << bits)} to {(1 << bits) - 1}"
        return _ALLOWED.get(self.type, "any text")

    def parse(self, text: str) -> Value:
        """The typed value of `text`. Raises InvalidValue."""
        value = self._convert(text)
        if self.check is not None:
            self.check.ensure(self.name, value)
        return value

    def _convert(self, text: str) -> Value:
        kind = self.type
        trimmed = text.strip()
        if kind is Type.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid(self.name, trimmed, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        if kind is Type.LIST:
            items = _COMMA.split(trimmed) if trimmed else ()
            return tuple(dict.fromkeys(items))  # repetitions count once (KIP-1161)
        if kind in _BITS:
            limit = 1 << _BITS[kind]
            if _DECIMAL.fullmatch(trimmed) and -limit <= int(trimmed) < limit:
                return int(trimmed)
            raise invalid(self.name, trimmed, f"Not a number of type {kind.name}")
        if kind is Type.DOUBLE:
            try:
                number = float(trimmed)
            except ValueError:
                number = math.nan
            if math.isnan(number):  # Java would accept it, and no range check would refuse it
                raise invalid(self.name, trimmed, "Not a number of type DOUBLE")
            return number
        if kind is not Type.PASSWORD:
            return trimmed
        from ottla.config.secret import Secret  # few nodes have one

        return Secret(text)

    def render(self, value: Value) -> str | None:
        """`value` as Kafka writes it (`ConfigDef.convertToString`); passwords are hidden."""
        if value is None:
            return None
        if self.sensitive:
            return "[hidden]"
        return ",".join(value) if isinstance(value, tuple) else java_text(value)
