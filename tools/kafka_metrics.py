"""Names of metrics in the jars of a Kafka: for `tools.kafka_diff`.

No list of them is in the jars. A class that registers metrics, or keeps their names, speaks of metrics somewhere, and
has the names as string constants: those that look like one are taken, `UnderReplicatedPartitions` or `commit-rate`.
What is none (a name of a thread, say) is in both releases as a rule, and so in no difference.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_JARS: Final = re.compile(r"(kafka|connect|trogdor)[-_].*\.jar")
_OF_METRICS: Final = b"Metric", b"/metrics/"
_NAME: Final = re.compile(rb"[A-Z][a-z0-9]+(?:[A-Z]+[a-z0-9]+)+|[a-z][a-z0-9]+(?:-[a-z0-9]+)+")
_UTF8, _STRING = 1, 8
_SIZES: Final = {
    3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2,
}  # fmt: skip
"""Bytes of a constant behind its tag (the JVM's specification, 4.4)."""
_TWO_PLACES: Final = (5, 6)


def constants(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """All texts of a class file, and those of them that are constant strings of its code. Raises ValueError."""
    texts: dict[int, bytes] = {}
    strings: list[int] = []
    (count,) = struct.unpack_from(">H", data, 8)
    number, at = 1, 10
    while number < count:
        tag = data[at]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", data, at + 1)
            texts[number] = data[at + 3 : at + 3 + size]
            at += 3 + size
        elif tag in _SIZES:
            if tag == _STRING:
                strings.append(int.from_bytes(data[at + 1 : at + 3], "big"))
            at += 1 + _SIZES[tag]
        else:
            raise ValueError(f"a class file has a constant of kind {tag}")
        number += 2 if tag in _TWO_PLACES else 1
    return [*texts.values()], [texts[each] for each in strings]


def _of_class(data: bytes) -> Iterator[str]:
    texts, strings = constants(data)
    if any(known in text for text in texts for known in _OF_METRICS):
        yield from (each.decode() for each in strings if _NAME.fullmatch(each))


def metric_names(jars: Iterable[Path]) -> dict[str, list[str]]:
    """The classes that have each name, without their packages, which change between releases."""
    found: dict[str, set[str]] = {}
    for jar in jars:
        if not _JARS.fullmatch(jar.name):
            continue
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class"):
                    owner = entry.removesuffix(".class").rpartition("/")[2].partition("$")[0]
                    for name in _of_class(archive.read(entry)):
                        found.setdefault(name, set()).add(owner)
    return {name: sorted(owners) for name, owners in sorted(found.items())}
