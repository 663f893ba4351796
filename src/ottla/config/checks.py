"""Constraints on the values of settings, with the sentences of Kafka's `ConfigDef` validators."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple, Protocol, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class InvalidValue(ValueError):
    """A value that a setting cannot have. The message is Kafka's; most name the value and the setting."""


class Check(Protocol):
    """A constraint on a typed value, which is never None. `str()` of it is the allowed range, for people."""

    def ensure(self, name: str, value: Value) -> None:
        """Raises InvalidValue when the setting `name` cannot have `value`."""
        ...


def invalid(name: str, value: Value, why: str) -> InvalidValue:
    return InvalidValue(f"Invalid value {java_text(value)} for configuration {name}: {why}")


def java_text(value: Value) -> str:
    """The text of a value as Java's string conversion gives it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """A double as `Double.toString` writes it: scientific below 1e-3 and from 1e7 on, with the shortest digits."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    texts = (f"{value:.{precision}e}" for precision in range(1, 18))
    mantissa, _, exponent = next(text for text in texts if float(text) == value).partition("e")
    return f"{mantissa}E{int(exponent)}"


class AtLeast(NamedTuple):
    """A lower bound (`ConfigDef.Range.atLeast`)."""

    low: int

    def ensure(self, name: str, value: Value) -> None:
        if value < self.low:  # type: ignore[operator]
            raise invalid(name, value, f"Value must be at least {self.low}")

    def __str__(self) -> str:
        return f"at least {self.low}"


class Between(NamedTuple):
    """Between two inclusive bounds (`ConfigDef.Range.between`)."""

    low: float
    high: float

    def ensure(self, name: str, value: Value) -> None:
        if value < self.low:  # type: ignore[operator]
            raise invalid(name, value, f"Value must be at least {self.low}")
        if value > self.high:  # type: ignore[operator]
            raise invalid(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


class OneOf(NamedTuple):
    """A word of a fixed set (`ConfigDef.ValidString`, `CaseInsensitiveValidString`)."""

    words: tuple[str, ...]
    any_case: bool = False

    def ensure(self, name: str, value: Value) -> None:
        words = ", ".join(self.words)
        if self.any_case:
            if str(value).upper() not in self.words:
                raise invalid(name, value, f"String must be one of (case insensitive): {words}")
        elif value not in self.words:
            raise invalid(name, value, f"String must be one of: {words}")

    def __str__(self) -> str:
        return "one of " + ", ".join(self.words)


class ListOf(NamedTuple):
    """A list whose items come from `words`, if any are given (`ConfigDef.ValidList`)."""

    words: tuple[str, ...] = ()
    empty: bool = True

    def ensure(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if not value and not self.empty:
            words = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            raise InvalidValue(f"Configuration '{name}' must not be empty. Valid values include: {words}")
        for item in value:
            if not item:
                raise InvalidValue(f"Configuration '{name}' values must not be empty.")
            if self.words and item not in self.words:
                raise invalid(name, item, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        of = f" of {', '.join(self.words)}" if self.words else ""
        return f"a {'' if self.empty else 'non-empty '}list{of}"


class Address(NamedTuple):
    """Empty, or `host:port`, `[::1]:port` or `:port`."""

    def ensure(self, name: str, value: Value) -> None:
        if value and parse_address(str(value)) is None:
            raise invalid(name, value, "Value must be host:port")

    def __str__(self) -> str:
        return "host:port, for example 127.0.0.1:9404"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port; None if `text` is no address."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
        return None
    return host.strip("[]"), int(port)


class NotEmpty(NamedTuple):
    """Any text but the empty one (`ConfigDef.NonEmptyString`)."""

    def ensure(self, name: str, value: Value) -> None:
        if not value:
            raise invalid(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "not empty"


class GzipLevel(NamedTuple):
    """1 to 9, or -1 for the library's own default."""

    def ensure(self, name: str, value: Value) -> None:
        if value not in (-1, *range(1, 10)):
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "from 1 to 9, or -1"


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class ThrottledReplicas(NamedTuple):
    """`*`, or pairs partition:broker (`ThrottledReplicaListValidator`)."""

    def ensure(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if "".join(value) != "*" and not all(not item or _REPLICA.fullmatch(item) for item in value):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            why = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
            raise invalid(name, value, why)

    def __str__(self) -> str:
        return "`*`, or a list of partition:broker"


_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,18})D)?(?:T(?=[-+\d])(?:([-+]?\d{1,18})H)?(?:([-+]?\d{1,18})M)?"
    r"(?:([-+]?\d{1,18})(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def reset_duration_ms(strategy: str) -> int | None:
    """How far back `by_duration:PnDTnHnMn.nS` goes, in milliseconds; None for `earliest` and `latest`.

    Raises InvalidValue for anything else, and for what lies ahead.
    """
    if strategy in ("earliest", "latest"):
        return None
    found = _DURATION.fullmatch(strategy.removeprefix(_BY_DURATION)) if strategy.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()[1:5]):
        raise InvalidValue(f"Unknown offset reset strategy: {strategy}")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    nanoseconds = int((fraction or "").ljust(9, "0") or 0)
    if seconds and seconds.startswith("-"):
        nanoseconds = -nanoseconds
    milliseconds = (whole * 1_000_000_000 + nanoseconds) // 1_000_000
    if sign == "-":
        milliseconds = -milliseconds
    if milliseconds < 0:
        raise InvalidValue(f"Negative duration is not supported in {strategy}")
    return milliseconds


class OffsetReset:
    """Where a share group begins that has no state (Kafka's `ShareGroupAutoOffsetResetStrategy`)."""

    def ensure(self, name: str, value: Value) -> None:
        try:
            reset_duration_ms(str(value))
        except InvalidValue:
            sentence = (
                f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or "
                "of the format 'by_duration:<PnDTnHnMn.nS>'."
            )
            raise invalid(name, value, sentence) from None

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"
