"""A warning about secrets among arguments: everyone on a machine sees those of all processes (`ps`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ottla.client.secret_names import has_secret, is_secret

OPTIONS: Final = ("--set", "-s", "--spark", "--registry", "--add-scram")
"""Options whose values may be, or have in them, a secret."""


def warn(arguments: Sequence[str]) -> None:
    """Print which option of a command line has a secret. The secret is not printed."""
    if sys.stderr is None:
        return
    for option in dict.fromkeys(secrets_in(arguments)):
        print(
            f"ottla: {option} has a secret, and everyone on this machine can see arguments: put it in a file or the "
            "environment",
            file=sys.stderr,
        )


def secrets_in(arguments: Sequence[str]) -> Iterator[str]:
    """The options, with the names of their settings, that have secrets."""
    ends = arguments.index("--") if "--" in arguments else len(arguments)
    for option, value in _values(arguments[:ends]):
        name, equals, text = value.partition("=")
        if equals and text and is_secret(name):
            yield f"{option} {name}"
        elif has_secret(value):
            yield f"{option} {name}" if equals and option != "--registry" else option


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for before, after in pairwise([*arguments, ""]):
        option, equals, value = before.partition("=")
        if option in OPTIONS:
            yield option, value if equals else after
