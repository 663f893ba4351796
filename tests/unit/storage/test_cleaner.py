from __future__ import annotations

import pytest

from ottla.storage.config import LogConfig
from tests.unit.storage.compaction import Compaction, batches, compacted
from tests.unit.storage.logs import NOW, ROOT


def test_only_the_latest_record_of_a_key_stays_at_its_offset() -> None:
    log = Compaction()
    log.put([(b"a", b"1"), (b"b", b"1")])
    log.put([(b"a", b"2"), (b"c", b"1")])
    log.log.roll()
    assert log.clean()
    assert [(each.offset, each.key, each.value) for each in log.records()] == [
        (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1"),
    ]  # fmt: skip
    assert log.log.cleaned_offset == 4
    assert log.fs.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b"0\n1\nt 0 4\n"
    assert not log.clean()
