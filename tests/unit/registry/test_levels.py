"""The seven levels: which versions are compared, which way round; who is elected; what a matching is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations

import pytest

from ottla.registry.election import DUPLICATE_URLS, Identity, choose
from ottla.registry.schema_types.compatibility import LEVELS, problems
from ottla.registry.schema_types.matching import largest_matching


@dataclass(frozen=True)
class Numbered:
    """Reads what was written with a number that is not larger."""

    number: int

    @property
    def text(self) -> str:
        return str(self.number)

    def normalized(self) -> str:
        return self.text

    def formatted(self, name: str) -> str:
        return self.text

    def resolved(self) -> str:
        return self.text

    def differences(self, older: Numbered) -> list[str]:
        return [] if self.number >= older.number else ["the %s schema is smaller than the %s schema"]


CASES = {
    # new, earlier ones: the levels that allow it
    (3, (1, 2)): {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"},
    (1, (2, 3)): {"NONE", "FORWARD", "FORWARD_TRANSITIVE"},
    (2, (2, 2)): set(LEVELS),
    (2, (3, 1)): {"NONE", "BACKWARD"},
    (2, (1, 3)): {"NONE", "FORWARD"},
    (2, (1, 2)): {"NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE"},
    (2, (3, 2)): {"NONE", "BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE"},
    (1, ()): set(LEVELS),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("level", LEVELS)
def test_level(level: str, case: tuple[int, tuple[int, ...]]) -> None:
    new, earlier = case
    found = problems(level, Numbered(new), [(n + 1, Numbered(each)) for n, each in enumerate(earlier)])
    assert (found == []) == (level in CASES[case])


def test_what_is_said() -> None:
    assert problems("FORWARD_TRANSITIVE", Numbered(3), [(4, Numbered(1)), (7, Numbered(3))]) == [
        "the old schema is smaller than the new schema",
        "{oldSchemaVersion: 4}",
        "{oldSchema: '1'}",
    ]
    assert problems("BACKWARD", Numbered(1), [(4, Numbered(2))])[0] == "the new schema is smaller than the old schema"


A, B, C = Identity("a", 1), Identity("b", 1), Identity("c", 1)


def test_the_smallest_url_is_elected() -> None:
    assert choose({"m1": C, "m2": A, "m3": B})["master"] == "m2"


def test_who_leads_goes_on() -> None:
    leading = Identity("c", 1, is_leader=True)
    assert choose({"m1": leading, "m2": A})["master"] == "m1"
    assert choose({"m1": leading, "m2": Identity("a", 1, is_leader=True)})["master"] == "m2", "of two the smaller"


def test_who_may_not_lead_is_not_elected() -> None:
    assert choose({"m1": Identity("a", 1, is_eligible=False), "m2": B})["master"] == "m2"
    assert "master" not in choose({"m1": Identity("a", 1, is_eligible=False)})


def test_addresses_that_are_the_same_are_said() -> None:
    assert choose({"m1": A, "m2": A})["error"] == DUPLICATE_URLS


def test_the_assignment_is_confluents() -> None:
    assert choose({"m1": A}) == {
        "version": 1,
        "error": 0,
        "master": "m1",
        "master_identity": {
            "version": 1,
            "host": "a",
            "port": 1,
            "master_eligibility": True,
            "scheme": "http",
            "leader": True,
        },
    }
    assert Identity.of_json(A.as_json()) == A


def test_the_largest_matching() -> None:
    pairs = [(left, right) for left in range(3) for right in range(3)]
    for count in range(len(pairs) + 1):
        for edges in combinations(pairs, count):
            best = max(sum(each in edges for each in enumerate(order)) for order in permutations(range(3)))
            found = largest_matching(edges, 3)
            assert len(found) == best
            assert set(found) <= set(edges)
            assert len({left for left, _ in found}) == len({right for _, right in found}) == len(found)
