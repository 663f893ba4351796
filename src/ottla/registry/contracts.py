"""Data contracts: a schema's metadata and rules, checked, in the one form in which they are kept, compared and hashed.

The form is that of Confluent's registry: names in a fixed order, sets sorted, what is empty left out, and a rule's
defaults written down. So the two registries give one contract one digest, and either reads what the other has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

CONFLUENT_VERSION: Final = "confluent:version"
"""A property of metadata that holds the version's own number."""
RULE_KINDS: Final = ("migrationRules", "domainRules", "encodingRules")
_RULE_NAME_MAX: Final = 256
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MIGRATIONS: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_ACCESSES: Final = ("WRITE", "READ", "WRITEREAD")
_BOTH_WAYS: Final = ("WRITEREAD", "UPDOWN")
"""Modes in which a rule may have an action for each way, with a comma between."""


class InvalidContract(ValueError):
    """No metadata, or no rule set: the text says why."""


def metadata_of(value: Any) -> dict[str, Any] | None:
    """Raises InvalidContract."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidContract("metadata is an object")
    tags = {name: _texts(each, "a path's tags") for name, each in _object(value, "tags").items()}
    found = {
        "tags": dict(sorted(tags.items())),
        "properties": _properties(value, "properties"),
        "sensitive": _texts(value.get("sensitive"), "sensitive"),
    }
    return {name: each for name, each in found.items() if each}


def rule_set_of(value: Any, *, is_checked: bool = True) -> dict[str, Any] | None:
    """Parse a rule set. A stored one need not be checked: a newer registry may know more. Raises InvalidContract."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidContract("ruleSet is an object")
    found: dict[str, Any] = {}
    names: set[str] = set()
    for kind in RULE_KINDS:
        rows = value.get(kind) or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidContract(f"{kind} is a list of rules")
        rules = [_rule(row) for row in rows]
        for rule in rules if is_checked else ():
            _check_rule(rule, kind)
            if rule["name"] in names:
                raise InvalidContract(f"Found rule with duplicate name '{rule['name']}'")
            names.add(rule["name"])
        if rules:
            found[kind] = rules
    if value.get("enableAt") is not None:
        found["enableAt"] = _text(value, "enableAt")
    return found


def _rule(row: Mapping[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "name": _text(row, "name"),
        "doc": _text(row, "doc"),
        "kind": _text(row, "kind") or "TRANSFORM",
        "mode": _text(row, "mode") or "WRITEREAD",
        "type": _text(row, "type"),
        "tags": _texts(row.get("tags"), "a rule's tags"),
        "params": _properties(row, "params"),
        "expr": _text(row, "expr"),
        "onSuccess": _text(row, "onSuccess"),
        "onFailure": _text(row, "onFailure"),
    }
    return {**{name: each for name, each in rule.items() if each}, "disabled": row.get("disabled") in (True, "true")}


def _check_rule(rule: Mapping[str, Any], where: str) -> None:
    if "name" not in rule:
        raise InvalidContract("Missing rule name")
    _check_name(rule["name"])
    if "type" not in rule:
        raise InvalidContract("Missing rule type")
    mode = rule["mode"]
    if rule["kind"] not in _KINDS or mode not in (*_MIGRATIONS, *_ACCESSES):
        raise InvalidContract(f"rule '{rule['name']}' has kind {rule['kind']} and mode {mode}")
    modes = _MIGRATIONS if where == "migrationRules" else _ACCESSES
    if mode not in modes:
        raise InvalidContract(f"{where.removesuffix('Rules').capitalize()} rules can only be {', '.join(modes)}")
    if mode not in _BOTH_WAYS and any("," in rule.get(action, "") for action in ("onSuccess", "onFailure")):
        raise InvalidContract("Multiple actions only valid with WRITEREAD and UPDOWN")


def _check_name(name: str) -> None:
    if len(name) > _RULE_NAME_MAX:
        raise InvalidContract("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidContract(f"Illegal initial character in rule name: {name}")
    if not all(char.isalnum() or char in "_-" for char in name):
        raise InvalidContract(f"Illegal character in rule name: {name}")


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidContract(f"{name} is an object")
    return found


def _properties(value: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: _string(each, f"{name}.{key}") for key, each in sorted(_object(value, name).items())}


def _texts(value: Any, what: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidContract(f"{what} is a list of strings")
    return sorted({_string(each, what) for each in value})


def _text(value: Mapping[str, Any], name: str) -> str | None:
    return None if value.get(name) is None else _string(value[name], name)


def _string(value: Any, what: str) -> str:
    """Numbers and booleans count as their text, as for Jackson."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return value
    raise InvalidContract(f"{what} is a string")


# Of contracts in their form


def hashed(metadata: Mapping[str, Any] | None, rule_set: Mapping[str, Any] | None) -> Iterator[bytes]:
    """The bytes that they add to a schema's digest, in the order of Confluent's registry."""
    if metadata is not None:
        yield b"\1"  # so that an empty one is not none
        for name, tags in metadata.get("tags", {}).items():
            yield "".join([name, *tags]).encode()
        for name, value in metadata.get("properties", {}).items():
            yield f"{name}{value}".encode()
        yield "".join(metadata.get("sensitive", ())).encode()
    if rule_set is not None:
        yield b"\1"
        for kind in RULE_KINDS:
            for rule in rule_set.get(kind, ()):
                yield from _hashed_rule(rule)
        yield rule_set.get("enableAt", "").encode()


def _hashed_rule(rule: Mapping[str, Any]) -> Iterator[bytes]:
    yield "".join(rule.get(each, "") for each in ("name", "doc", "kind", "mode", "type")).encode()
    yield "".join(rule.get("tags", ())).encode()
    yield "".join(f"{name}{value}" for name, value in rule.get("params", {}).items()).encode()
    yield "".join(rule.get(each, "") for each in ("expr", "onSuccess", "onFailure")).encode()
    if rule.get("disabled"):
        yield b"\1"


def version_of(metadata: Mapping[str, Any] | None) -> int | None:
    """The number that metadata give of their own version."""
    text = ((metadata or {}).get("properties") or {}).get(CONFLUENT_VERSION, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def with_version(metadata: Mapping[str, Any] | None, version: int | None) -> dict[str, Any]:
    """Metadata that give their version's number, or none."""
    properties = dict((metadata or {}).get("properties") or {})
    properties.pop(CONFLUENT_VERSION, None)
    if version is not None:
        properties[CONFLUENT_VERSION] = str(version)
    return metadata_of({**(metadata or {}), "properties": properties}) or {}


def are_same_metadata(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, old_version: int) -> bool:
    """Whether only one of the two says of which version it is, if they differ at all; a new one has to say the old
    one's version then."""
    says_new, says_old = version_of(new), version_of(old)
    if says_new is None and says_old is not None:
        return (new or {}) == with_version(old, None)
    if says_new is not None and says_old is None:
        return says_new == old_version and with_version(new, None) == (old or {})
    return new == old
