"""The same patterns and texts for Ottla and for RE2/J, which Kafka's brokers use: from a seed, and some by hand."""

from __future__ import annotations

import random
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator

import pytest

from ottla.protocol.regular_expression import InvalidRegularExpression, RegularExpression
from tests.conformance.line_program import Lines

PATTERNS = 4_000
LEAST = {"invalid": 300, "matches": 2_000, "does not": 5_000}
"""Minimum counts of events, or the walk proves little."""
ATOMS = [
    "a", "b", "-", "é", "λ", r"\.", ".", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", "[a-c-]", "[[:alpha:]]",
    "[[:^digit:]]",    r"\pL", r"\PL", r"\p{Greek}", r"\p{^Greek}", r"\p{Nd}",
    r"[\d\p{Lu}]", r"\Qa.\E", r"\x61", r"\x{e9}",
    r"\141",
    "^", "$", r"\A",    r"\z", r"\b", r"\B", "(?i)a", "(?s).", r"[\w-]", r"\t", r"\a",
]  # fmt: skip
WRONG = [
    "[", "(", ")", "*", r"\1", r"\Z", "(?=a)", "(?<=a)", "(?!a)", "a**", "a{1001}", "a{2,1}", "[b-a]", r"\p{Lost}",
    r"\8",
    "a++",    "(?P<n>", "(?#x)", "(?z)", "[[:lost:]]",
]  # fmt: skip
TEXTS = ["", "a", "b", "ab", "aab", "aba-", "A", "é", "λ", "a.b", "a7", "-", "a b", "a\nb", "aaaa", "É7"]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("org.apache.kafka.ottla.RegexLines")
    yield started
    started.close()


def pattern(rng: random.Random, depth: int = 0) -> str:
    """A pattern of two to four parts; invalid at times."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.04:
            part = rng.choice(WRONG)
        elif kind < 0.25 and depth < 3:
            part = rng.choice(
                ["({})", "(?:{})", "(?i:{})", f"(?P<x{depth}{rng.getrandbits(30)}>{{}})", "({}|b)"]
            ).format(pattern(rng, depth + 1))
        else:
            part = rng.choice(ATOMS)
        parts.append(part + rng.choices(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "+?"], [8, 2, 2, 2, 1, 1, 1, 1])[0])
    return "".join(parts)


def ours(pattern: str, texts: list[str]) -> str:
    try:
        expression = RegularExpression(pattern)
    except InvalidRegularExpression:
        return "invalid"
    return "".join(str(int(expression.matches(text))) for text in texts)


def theirs(kafka: Lines, pattern: str, texts: list[str]) -> str:
    return kafka.ask(" ".join("t" + b64encode(each.encode()).decode() for each in (pattern, *texts)))[0]


def test_patterns_mean_what_they_mean_to_kafka(kafka: Lines) -> None:
    rng = random.Random(7)
    done: Counter[str] = Counter()
    for each in [*WRONG, *ATOMS, *(pattern(rng) for _ in range(PATTERNS))]:
        found = ours(each, TEXTS)
        assert found == theirs(kafka, each, TEXTS), each
        if found == "invalid":
            done["invalid"] += 1
        else:
            done["matches"] += found.count("1")
            done["does not"] += found.count("0")
    assert all(done[what] >= least for what, least in LEAST.items()), done
