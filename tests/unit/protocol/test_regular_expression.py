"""Regular expressions of clients: what matches, what is refused, and that no pattern takes for ever."""

from __future__ import annotations

import re

import pytest

from ottla.protocol.regular_expression import InvalidRegularExpression, RegularExpression

TEXTS = ["", "a", "b", "ab", "aab", "abc", "order-17", "ORDER-1", "a.b", "a\nb", "é", "x" * 50]
PATTERNS = [
    "", "a", "a*", "a+b", "(a|b)*", "a?b?", "[a-c]+", "[^a]", ".*", "order-[0-9]{1,3}", r"\w+-\d+", r"[\w-]+",
    "(?i)order-.*", "(?s)a.b", "^ab$", "a^b", "a$b", "(?:ab|a)b?", "a{2}b", "a{0,2}b", "x{50}", "x{51}",
    "(a*)*b", r"a\.b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_whole_text_is_matched_as_by_python(pattern: str) -> None:
    expression = RegularExpression(pattern)
    for text in TEXTS:
        assert expression.matches(text) == bool(re.fullmatch(pattern, text, re.ASCII)), text


def test_what_only_re2_knows() -> None:
    assert RegularExpression(r"\Qa.b\E+").matches("a.bb")
    assert not RegularExpression(r"\Qa.b\E").matches("axb")
    assert RegularExpression(r"ab\z").matches("ab")


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "(a{900}){900}", r"a\Z", "a" * 5_000]
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        RegularExpression(pattern)


def test_no_pattern_takes_for_ever() -> None:
    """What a backtracking matcher would need the age of the universe for."""
    steps = list(RegularExpression("(x+x+)+y").matching("x" * 20_000))
    assert 20 <= len(steps) < 1_000
