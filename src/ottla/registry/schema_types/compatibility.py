"""The seven levels of compatibility: with which versions a new schema is compared, and which way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.registry.schema_types.parsed import ParsedSchema

LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


def problems(level: str, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Why a schema may not follow earlier ones (version and schema, ascending) at a level; nothing if it may.

    Of several versions that it is not compatible with the youngest is reported.
    """
    if level == "NONE":
        return []
    chosen = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    for version, old in reversed(chosen):
        found = _compared(level.removesuffix("_TRANSITIVE"), new, old)
        if found:
            return [*found, f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{old.text}'}}"]
    return []


def _compared(level: str, new: Any, old: Any) -> list[str]:
    if type(new) is not type(old):
        return [
            "{errorType:'SCHEMA_TYPE_MISMATCH', description:'The type of the new schema is another than that of the "
            "old schema'}"
        ]
    found = []
    if level in ("BACKWARD", "FULL"):
        found += [_named(each, "new", "old") for each in new.differences(old)]
    if level in ("FORWARD", "FULL"):
        found += [_named(each, "old", "new") for each in old.differences(new)]
    return list(dict.fromkeys(found))


def _named(message: str, reader: str, writer: str) -> str:
    """Only the message's own places are filled in: a name in it may hold a %s, too, but behind them."""
    return message.replace("%s", reader, 1).replace("%s", writer, 1)
