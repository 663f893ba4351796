"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.values import INT64_MAX, Addresses

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    Addresses,
    Parameter(name=["--bootstrap", "-b"], env_var="OTTLA_BOOTSTRAP", help="Brokers to ask first: HOST:PORT,..."),
]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON for programs.")]

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"(\d+)([smhd])")


def asked_at(command: str, bootstrap: str) -> str:
    """A command for a message, so that it works as printed: with the brokers that this one was given."""
    is_default = bootstrap == (os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP)
    command = command if is_default or not bootstrap else f"{command} -b {shlex.quote(bootstrap)}"
    file = client_security.typed()
    return command if file is None else f"{command} --config {shlex.quote(str(file))}"


_HINT = re.compile(
    r"^(  .*: |  )(ottla (?:cluster|consume|config|group|produce|quorum|topic|transaction) [^,;]*)", re.MULTILINE
)
_ASKS_NOBODY = re.compile(r" -b | --bootstrap[ =]| --help\b|^ottla (?:config explain|cluster (?:add|up))\b")


def hints_asked_at(complaint: str, bootstrap: str) -> str:
    """A complaint whose second line names a command that asks brokers: with those that the failed one was given."""

    def asked(hint: re.Match[str]) -> str:
        before, command = hint.groups()
        return before + (command if _ASKS_NOBODY.search(command) else asked_at(command, bootstrap))

    return _HINT.sub(asked, complaint)


def parse_pairs(pairs: Iterable[str], option: str) -> list[tuple[str, str]]:
    """`name=value` texts taken apart; names may repeat. Raises CommandFailed for one without an equals sign."""
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandFailed(f"{option} must be name=value, not {pair!r}", MISUSED)
        found.append((name.strip(), value))
    return found


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` pairs as a mapping, the last of a name. Raises CommandFailed for one without an equals sign."""
    return dict(parse_pairs(pairs, option))


_ESCAPED = re.compile(r"\\([tnr0\\])")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> bytes:
    r"""`\t` as a tab, and so on: typing a real one into a shell is hard."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match[1]], text).encode(errors="surrogateescape")


def parse_time_ms(text: str, now_ms: int) -> int | None:
    """Milliseconds since the epoch for `10m` (ago), an ISO date or time (local unless it has a zone), or None.

    What lies before the epoch is the epoch: negative timestamps mean other things in ListOffsets.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
        return min(max(0, int(datetime.fromisoformat(text).timestamp() * 1000)), INT64_MAX)
    except (ValueError, OverflowError, OSError):  # more digits than `int` takes; a year that no clock has
        return None
