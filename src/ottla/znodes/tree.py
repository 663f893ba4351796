"""Znodes as a mapping of path to content, their JSON, and the names in their paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote_plus

from ottla.errors import OttlaError

DEFAULT_NAME: Final = "<default>"
"""The znode of an entity that stands for all that have none of their own."""

PATH_NAMED_MAX: Final = 300
"""Characters of a path that a message shows."""


class Znode(NamedTuple):
    """The content of a znode. A null one counts as empty, as in Kafka's `ZkData`."""

    data: bytes = b""
    version: int = 0
    """How often the data was set; of a partition's state it is the partition epoch."""


Tree = Mapping[str, Znode]
"""Absolute paths below the chroot. A znode whose children matter is in the mapping too."""


class BadZnode(OttlaError):
    """A znode whose content cannot be read, or is of a version that this software does not know."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        shown = path if len(path) <= PATH_NAMED_MAX else f"{path[:PATH_NAMED_MAX]}..."
        super().__init__(f"{shown}: {why}")


class Children:
    """The names below each path, sorted, of a tree that does not change meanwhile."""

    def __init__(self, tree: Tree) -> None:
        self._names: dict[str, list[str]] = {}
        for path in tree:
            parent, _, name = path.rpartition("/")
            if name:
                self._names.setdefault(parent, []).append(name)
        for names in self._names.values():
            names.sort()

    def of(self, path: str) -> list[str]:
        return self._names.get(path, [])


def sanitized(name: str) -> str:
    """A name as `Sanitizer.sanitize` writes it into a path or a token: Java's URL encoding, a space as `%20`."""
    return quote(name, safe="").replace("~", "%7E")


def desanitized(path: str, name: str) -> str:
    """Raises BadZnode where the escapes are none."""
    try:
        found = unquote_plus(name, errors="strict")
    except UnicodeDecodeError:
        raise BadZnode(path, f"the name {name!r} is not UTF-8 behind its escapes") from None
    for at, letter in enumerate(name):
        if letter == "%" and not _is_escape(name[at + 1 : at + 3]):
            raise BadZnode(path, f"the name {name!r} has a % that begins no escape")
    return found


def _is_escape(digits: str) -> bool:
    return len(digits) == 2 and all(each in "0123456789abcdefABCDEF" for each in digits)


_NOT_IN_PATHS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def is_path(path: str) -> bool:
    """Whether ZooKeeper takes the path (`PathUtils.validatePath`)."""
    return _NOT_IN_PATHS.search(path) is None and not any(part in ("", ".", "..") for part in path.split("/")[1:])


class Fields:
    """A JSON object of a znode, whose members are asked for with their types. Raises BadZnode."""

    def __init__(self, path: str, content: Any) -> None:
        self.path = path
        if not isinstance(content, dict):
            raise BadZnode(path, "is damaged: it holds no JSON object")
        self._content = content

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def items(self) -> Iterator[tuple[str, Any]]:
        return iter(self._content.items())

    def version(self, *known: int) -> int:
        """The version; one that is not `known` is refused, for its other members may mean something else."""
        found = self.integer("version")
        if found not in known:
            raise BadZnode(self.path, f"has version {found}; this software knows {', '.join(map(str, known))}")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number; Kafka also writes some as text."""
        value = self._content.get(name, default)
        if isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                pass
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadZnode(self.path, f"is damaged: {name} is no whole number")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._content.get(name, default)
        if not isinstance(value, str):
            raise BadZnode(self.path, f"is damaged: {name} is no text")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        if default is not None and name not in self._content:
            return default
        return integers(self.path, name, self._content.get(name))

    def objects(self, name: str) -> list[Fields]:
        value = self._content.get(name)
        if not isinstance(value, list):
            raise BadZnode(self.path, f"is damaged: {name} is no list")
        return [Fields(self.path, each) for each in value]

    def object(self, name: str, *, optional: bool = False) -> Fields:
        value = self._content.get(name)
        return Fields(self.path, {} if value is None and optional else value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._content.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadZnode(self.path, f"is damaged: {name} is no list of texts")
        return tuple(value)


def integers(path: str, name: str, value: Any) -> tuple[int, ...]:
    """A list of numbers of brokers or partitions. Raises BadZnode."""
    if not isinstance(value, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        raise BadZnode(path, f"is damaged: {name} is no list of whole numbers")
    return tuple(value)


def fields_of(path: str, data: bytes) -> Fields:
    """The JSON object in a znode. Raises BadZnode."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise BadZnode(path, "is damaged: it is empty" if not data else "is damaged: it is not JSON") from None
    return Fields(path, content)


def to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
