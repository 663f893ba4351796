"""Regular expressions of clients: what matches, what is refused, and that no pattern takes for ever.
`tests/conformance/walks/test_regular_expressions.py` asks RE2/J for the same."""

from __future__ import annotations

import re

import pytest

from ottla.protocol.regular_expression import PATTERN_LENGTH_MAX, InvalidRegularExpression, RegularExpression

TEXTS = ["", "a", "b", "ab", "aab", "abc", "order-17", "ORDER-1", "a.b", "a\nb", "é", "x" * 50]
PATTERNS = [
    "", "a", "a*", "a+b", "(a|b)*", "a?b?", "[a-c]+", "[^a]", ".*", "order-[0-9]{1,3}", r"\w+-\d+", r"[\w-]+",
    "(?i)order-.*", "(?s)a.b", "^ab$", "a^b", "a$b", "(?:ab|a)b?", "a{2}b", "a{0,2}b", "x{50}", "x{51}",
    "(a*)*b", r"a\.b", r"\border\b.*", r"a\Bb",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_whole_text_is_matched_as_by_python(pattern: str) -> None:
    expression = RegularExpression(pattern)
    for text in TEXTS:
        assert expression.matches(text) == bool(re.fullmatch(pattern, text, re.ASCII)), text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\Qa.b\E+", "a.bb"),
        (r"ab\z", "ab"),
        (r"\p{Greek}+-\p{Lu}", "λόγος-É"),
        (r"[[:alpha:]]+[[:digit:]]", "abc7"),
        (r"\pL+", "é"),
        (r"(?U)a+", "aa"),
    ],
)
def test_what_only_re2_knows(pattern: str, text: str) -> None:
    assert RegularExpression(pattern).matches(text)
    assert not RegularExpression(pattern).matches(text + "!")


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "(a{900}){900}", r"a\Z", r"\p{Lost}"]
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        RegularExpression(pattern)


def test_a_pattern_has_a_limit() -> None:
    assert RegularExpression("a" * PATTERN_LENGTH_MAX).matches("a" * PATTERN_LENGTH_MAX)
    with pytest.raises(InvalidRegularExpression, match="longer than"):
        RegularExpression("a" * (PATTERN_LENGTH_MAX + 1))


def test_no_pattern_takes_for_ever() -> None:
    """What a backtracking matcher would need the age of the universe for."""
    assert not RegularExpression("(x+x+)+y").matches("x" * 20_000)
