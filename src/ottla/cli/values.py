"""What options and arguments may be, in one place: each kind of value is a type with its check.

A check returns what is wanted instead, or None. A command takes these types, and no plain `str` or `int`
(`test_cli_hostile_values.py` looks).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ottla.config.units import parse_byte_rate

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
STRING_BYTES_MAX = 2**15 - 1
"""Limit of a string in Kafka's protocol."""
TOPIC_CHARACTERS_MAX = 249
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
"""librdkafka's limits (RD_KAFKAP_PARTITIONS_MAX, RD_KAFKAP_BROKERS_MAX)."""
INTERVAL_S_MAX = 86_400.0
MINUTES_MAX = 100_000.0

PORT_MAX = 65_535

PERIOD_MS_MAX = 36_500 * 86_400_000
_PERIOD = re.compile(r"([0-9]{1,12})([smhd])", re.ASCII)
_PERIOD_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_ADDRESS = re.compile(
    r"(?:PLAINTEXT://)?(?:\[(?P<bracketed>[^\s/\[\],]+)\]|(?P<host>[^\s/\[\],]+)):(?P<port>[0-9]{1,5})"
)


def _each(check: Callable[[Any], str | None]) -> Callable[[Any, Any], None]:
    """Options that may be repeated come as lists, those that were left out as None."""

    def validator(_: Any, value: Any) -> None:
        if value is None:
            return
        for each in value if isinstance(value, list | tuple) else (value,):
            wanted = check(each)
            if wanted is not None:
                shown = repr(each)
                raise ValueError(f"must be {wanted}, not {shown if len(shown) < 100 else shown[:80] + '...'}")

    return validator


def _whole(least: int, most: int) -> Callable[[Any, Any], None]:
    wanted = f"a whole number from {least} to {most}"
    return _each(lambda value: None if least <= value <= most else wanted)


def _text(value: str) -> str | None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "UTF-8"
    return "text without NUL characters" if "\0" in value else _short(size)


def _short(size: int) -> str | None:
    return None if size <= STRING_BYTES_MAX else f"text of at most {STRING_BYTES_MAX} bytes"


def _name(value: str) -> str | None:
    return _text(value) if value else "a name"


def _trimmed_name(value: str) -> str | None:
    """librdkafka takes white space off the ends of its settings, and aborts where nothing is left."""
    return _name(value) if value == value.strip() else "a name without leading or trailing white space"


def topic_name(value: str) -> str | None:
    """None for a name that a topic can have (`Topic.validate` of Kafka), else what is wanted."""
    if _TOPIC.fullmatch(value) and value not in (".", "..") and len(value) <= TOPIC_CHARACTERS_MAX:
        return None
    return f"a topic's name, made of up to {TOPIC_CHARACTERS_MAX} ASCII letters, digits, '.', '_' and '-'"


def _interval(value: float) -> str | None:
    return None if 0 < value <= INTERVAL_S_MAX else f"a number of seconds above 0, up to {INTERVAL_S_MAX:.0f}"  # no nan


def _minutes(value: float) -> str | None:
    return None if 0 <= value <= MINUTES_MAX else f"a number of minutes from 0 to {MINUTES_MAX:.0f}"


def parse_period_ms(text: str) -> int | None:
    """`30s`, `10m`, `12h` or `7d` in milliseconds; None for what is none of these, or more than a century."""
    match = _PERIOD.fullmatch(text)
    period_ms = 0 if match is None else int(match[1]) * _PERIOD_MS[match[2]]
    return period_ms if 0 < period_ms <= PERIOD_MS_MAX else None


def _period(value: str) -> str | None:
    return None if parse_period_ms(value) else "a time such as 30s, 10m, 12h or 7d, of at most 36500d"


def _byte_rate(value: str) -> str | None:
    return None if parse_byte_rate(value) else "bytes per second, such as 500K, 20M or 1G"


def _addresses(value: str) -> str | None:
    try:
        return None if parse_addresses(value) else "HOST:PORT,..., such as 127.0.0.1:9092"
    except ValueError as error:
        return str(error)


def parse_addresses(text: str) -> list[str]:
    """The single HOST:PORTs of `--bootstrap`, IPv6 in brackets. Raises ValueError with what is wanted."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.fullmatch(part)
        if match is None:
            raise ValueError("HOST:PORT,..., such as 127.0.0.1:9092")
        if not 0 < int(match["port"]) <= PORT_MAX:
            raise ValueError(f"HOST:PORT,... with ports from 1 to {PORT_MAX}")
        host = match["bracketed"] or match["host"]
        try:
            host.encode("idna")
        except UnicodeError:
            raise ValueError("HOST:PORT,... with valid host names") from None
        found.append(f"[{host}]:{match['port']}" if ":" in host else f"{host}:{match['port']}")
    return found


TopicName = Annotated[str, Parameter(validator=_each(topic_name))]
GroupId = Annotated[str, Parameter(validator=_each(_name))]
MemberGroupId = Annotated[str, Parameter(validator=_each(_trimmed_name))]
TransactionalId = Annotated[str, Parameter(validator=_each(_name))]
QuotaName = Annotated[str, Parameter(validator=_each(_name))]
"""Name of the user, client id or address that a quota is for."""
UserName = Annotated[str, Parameter(validator=_each(_name))]
TokenId = Annotated[str, Parameter(validator=_each(_name))]
Period = Annotated[str, Parameter(validator=_each(_period))]
Iterations = Annotated[int, Parameter(validator=_whole(4096, 16_384))]
"""Kafka's limits for SCRAM."""
SettingName = Annotated[str, Parameter(validator=_each(_name))]
Text = Annotated[str, Parameter(validator=_each(_text))]
"""What a reader of its own takes apart: name=value, a position, a format, TOPIC:0,1."""
Raw = Annotated[str, Parameter(validator=_each(lambda value: None))]
"""Bytes of a record as they were typed: any at all."""
FilePath = Annotated[Path, Parameter(validator=_each(lambda value: None))]
"""The system's to refuse."""
Addresses = Annotated[str, Parameter(validator=_each(_addresses))]
Partition = Annotated[int, Parameter(validator=_whole(0, INT32_MAX))]
BrokerId = Annotated[int, Parameter(validator=_whole(0, INT32_MAX))]
PartitionCount = Annotated[int, Parameter(validator=_whole(1, PARTITIONS_MAX))]
ReplicaCount = Annotated[int, Parameter(validator=_whole(1, REPLICAS_MAX))]
Count = Annotated[int, Parameter(validator=_whole(0, INT64_MAX))]
Offset = Annotated[int, Parameter(validator=_whole(0, INT64_MAX))]
LineBytes = Annotated[int, Parameter(validator=_whole(16, INT32_MAX))]
ByteRate = Annotated[str, Parameter(validator=_each(_byte_rate))]
Days = Annotated[int, Parameter(validator=_whole(1, 3650))]
NodeCount = Annotated[int, Parameter(validator=_whole(1, 100))]
NodesOrDirectory = Annotated[str, Parameter(validator=_each(_text))]
"""A `NodeCount`, or a directory, which is told from a number by what else it has, as in ./3."""
Port = Annotated[int, Parameter(validator=_whole(0, PORT_MAX))]
CheckRate = Annotated[int, Parameter(validator=_whole(1, 100_000))]
Minutes = Annotated[float, Parameter(validator=_each(_minutes))]
ProcessCount = Annotated[int, Parameter(validator=_whole(0, 1000))]
Seconds = Annotated[float, Parameter(validator=_each(_interval))]
