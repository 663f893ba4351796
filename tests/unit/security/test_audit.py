"""A chain of audit lines: what a check finds when somebody has been at it, and what only a kept head shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.audit import FIRST_HASH, LINE_BYTES_MAX, Chain, Check, Head, link, parse, timestamp

NOW = 1_700_000_000_123


def lines(count: int, chain: Chain | None = None) -> list[bytes]:
    made = chain or Chain()
    return [made.seal(NOW + n, {"event": "CreateTopics", "resource": f"topic:t{n}"}) for n in range(count)]


def problems(found: list[bytes], *heads: Head) -> list[tuple[int, str]]:
    """The numbers of the lines that do not fit, from 1, with what is said of them; 0 stands for the end."""
    check = Check(heads)
    said = [(number, check.line(line.rstrip(b"\n"))) for number, line in enumerate(found, start=1)]
    return [(number, text) for number, text in said if text is not None] + [(0, text) for text in check.end()]


def test_a_line() -> None:
    (line,) = lines(1)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    event = json.loads(line)
    assert event.pop("hash") == Head.read(str(Head(1, parse(line).hash))).hash  # type: ignore[union-attr]
    assert event == {"seq": 1, "time": "2023-11-14T22:13:20.123Z", "event": "CreateTopics", "resource": "topic:t0"}
    assert parse(line).hash == link(FIRST_HASH, json.dumps(event, separators=(",", ":")).encode())  # type: ignore[union-attr]


def test_times() -> None:
    assert [timestamp(each) for each in (0, 999, 951_782_400_000)] == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.999Z",
        "2000-02-29T00:00:00.000Z",
    ]


def test_what_clients_choose_makes_no_line_too_long_and_no_second_line() -> None:
    chain = Chain()
    hostile = chain.seal(NOW, {"resource": 'topic:\n"},\x1b[31m\udcff' + "x" * 100_000})
    assert hostile.count(b"\n") == 1 and len(hostile) < 3_000 and hostile.isascii()
    changes = [{"what": f"setting.{n}", "before": None, "after": "y" * 100} for n in range(1_000)]
    long = chain.seal(NOW, {"event": "AlterConfigs", "changes": changes})
    assert len(long) < LINE_BYTES_MAX and json.loads(long)["changes_left_out"] == 1_000
    assert problems([hostile, long]) == []


def test_a_whole_chain_fits_also_over_restarts() -> None:
    first = Chain()
    begun = lines(3, first)
    whole = begun + lines(3, Chain(first.head))
    assert problems(whole) == []
    assert problems(whole, first.head, Head(6, json.loads(whole[-1])["hash"])) == []
    assert problems([], Head(0, FIRST_HASH)) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda each: [*each[:2], each[2].replace(b"topic:t2", b"topic:x2"), *each[3:]], [(3, "does not follow")]),
        (lambda each: [*each[:2], *each[3:]], [(3, "event 3 is missing")]),
        (lambda each: [*each[:1], *each[4:]], [(2, "events 2 to 4 are missing")]),
        (lambda each: [each[0], each[2], each[1], *each[3:]], [(2, "event 2 is missing"), (3, "stands behind")]),
        (lambda each: [*each[:3], each[2], *each[3:]], [(4, "stands behind event 3")]),
        (lambda each: [*each[:2], b"\n", *each[2:]], [(3, "is no event")]),
        (lambda each: [*each[:2], each[2][:-20] + b"\n", *each[3:]], [(3, "is no event"), (4, "event 3 is missing")]),
        (lambda each: each[1:], [(1, "were removed from their file"), (0, "events 1 to 1 are missing")]),
    ],
)
def test_lines_that_were_touched(change, expected) -> None:  # type: ignore[no-untyped-def]
    found = problems(change(lines(6)))
    assert [number for number, _ in found] == [number for number, _ in expected]
    assert all(text in said for (_, said), (_, text) in zip(found, expected, strict=True)), found


def test_a_line_with_a_new_hash_of_its_own_does_not_help() -> None:
    whole = lines(4)
    body = parse(whole[1]).body.replace(b"topic:t1", b"topic:x1")  # type: ignore[union-attr]
    own = link(parse(whole[0]).hash, body)  # type: ignore[union-attr]
    forged = body[:-1] + f',"hash":"{own}"}}\n'.encode()
    ((number, said),) = problems([whole[0], forged, *whole[2:]])
    assert number == 3 and "event 3 does not follow event 2" in said


def test_only_a_head_shows_that_the_end_is_missing_or_all_is_new() -> None:
    whole = lines(6)
    head = Head(6, json.loads(whole[-1])["hash"])
    assert problems(whole[:4]) == []
    ((number, said),) = problems(whole[:4], head)
    assert number == 0 and "ends with event 4" in said and "event 6" in said
    assert "is empty" in problems([], head)[0][1]
    other = Chain()
    forged = [other.seal(NOW, {"event": "Harmless"}) for _ in range(6)]
    assert problems(forged) == []
    ((number, said),) = problems(forged, head)
    assert number == 6 and "rewritten" in said


@given(st.integers(0, 7), st.integers(0, 10_000), st.integers(1, 255))
def test_any_byte_that_changes_is_found(line: int, place: int, flip: int) -> None:
    whole = lines(8)
    target = bytearray(whole[line][:-1])
    target[place % len(target)] ^= flip
    touched = [*whole[:line], bytes(target) + b"\n", *whole[line + 1 :]]
    found = [number for number, _ in problems(touched)]
    assert found and found[0] in (line + 1, line + 2)


@pytest.mark.parametrize("text", ["", "5", "5:", ":" + "a" * 64, "5:" + "A" * 64, "x:" + "a" * 64, "5:" + "a" * 63])
def test_what_is_no_head(text: str) -> None:
    with pytest.raises(ValueError, match="SEQ:HASH"):
        Head.read(text)
