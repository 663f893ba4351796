"""Regular expressions of clients, in RE2's syntax, matched in time that grows with the text only.

Kafka's brokers use RE2/J for what clients send them, as a backtracking matcher can be held up for ever by a few bytes.
The pattern is parsed by Python's parser, what RE2 does not have is refused (back-references, look-around, possessive
repeats), and a set of states goes through the text. Not known: `\\p{...}`, `\\C`, `[[:class:]]` and `(?U)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import partial
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

PATTERN_LENGTH_MAX: Final = 4_096
STATES_MAX: Final = 2_000
"""Of a pattern with its repeats written out."""
REPEATS_MAX: Final = 1_000
"""As RE2."""
STATES_PER_STEP: Final = 500
"""Looked at between two yields: some hundred microseconds."""
TRANSITIONS_KEPT: Final = 1_000

Test = Callable[[str], bool]
_States = frozenset[int]


class InvalidRegularExpression(ValueError):
    """Not one of RE2's, or too large."""


class RegularExpression:
    """Raises InvalidRegularExpression."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(f"longer than {PATTERN_LENGTH_MAX} characters")
        self._tests: list[Test | None] = []
        """What a state wants of the next character; None where it goes on without one."""
        self._next: list[list[int]] = []
        self._known: dict[tuple[_States, str], _States] = {}
        try:
            parsed = parser.parse(_quoted(pattern))
            self._flags: int = parsed.state.flags
            end = self._state(None, [])
            start = self._sequence(parsed, end, self._flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRegularExpression(str(error)) from error
        self._end = end
        self._start = self._closure([start], _at_start)

    def matching(self, text: str) -> Generator[int, None, bool]:
        """Whether the whole text matches; yields the cost of its steps."""
        states, looked_at = self._start, 0
        for position, character in enumerate(text):
            following = self._known.get((states, character))
            if following is None:
                found = [
                    each
                    for state in states
                    if (test := self._tests[state]) is not None and test(character)
                    for each in self._next[state]
                ]
                following = self._closure(found)
                if len(self._known) >= TRANSITIONS_KEPT:
                    self._known.clear()
                self._known[states, character] = following
                looked_at += len(states) + len(following)
            if not following:
                return False
            states = following
            if looked_at + position % STATES_PER_STEP >= STATES_PER_STEP - 1:
                looked_at = 0
                yield STATES_PER_STEP
        return self._end in self._closure([*states], _at_end)

    def matches(self, text: str) -> bool:
        matching = self.matching(text)
        while True:
            try:
                next(matching)
            except StopIteration as end:
                return bool(end.value)

    def _closure(self, states: list[int], anchor: Test | None = None) -> _States:
        """With the states that are reached without a character, and through this anchor."""
        seen = dict.fromkeys(states)
        left = list(states)
        while left:
            state = left.pop()
            if self._tests[state] is None or (anchor is not None and self._tests[state] is anchor):
                for each in self._next[state]:
                    if each not in seen:
                        seen[each] = None
                        left.append(each)
        return frozenset(seen)

    # The states are made from the end of the pattern to its start: each knows where it goes on.

    def _state(self, test: Test | None, following: list[int]) -> int:
        if len(self._tests) >= STATES_MAX:
            raise InvalidRegularExpression(f"more than {STATES_MAX} states")
        self._tests.append(test)
        self._next.append(following)
        return len(self._tests) - 1

    def _sequence(self, items: Any, following: int, flags: int) -> int:
        for kind, argument in reversed(list(items)):
            following = self._item(kind, argument, following, flags)
        return following

    def _item(self, kind: Any, argument: Any, following: int, flags: int) -> int:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, items = argument
            return self._repeat(least, most, items, following, flags)
        if kind is sre.SUBPATTERN:
            _, added, removed, items = argument
            return self._sequence(items, following, (flags | added) & ~removed)
        if kind is sre.BRANCH:
            return self._state(None, [self._sequence(each, following, flags) for each in argument[1]])
        if kind is sre.AT:
            return self._anchor(argument, following, flags)
        return self._state(_test(kind, argument, flags), [following])

    def _repeat(self, least: int, most: Any, items: Any, following: int, flags: int) -> int:
        if least > REPEATS_MAX or (most is not sre.MAXREPEAT and most > REPEATS_MAX):
            raise InvalidRegularExpression(f"more than {REPEATS_MAX} repeats")
        if most is sre.MAXREPEAT:
            loop = self._state(None, [following])
            self._next[loop].append(self._sequence(items, loop, flags))
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._state(None, [end, self._sequence(items, following, flags)])
        for _ in range(least):
            following = self._sequence(items, following, flags)
        return following

    def _anchor(self, where: Any, following: int, flags: int) -> int:
        if flags & re.MULTILINE or where not in _ANCHORS:
            raise InvalidRegularExpression("boundaries of lines and words are not supported")
        return self._state(_ANCHORS[where], [following])


def _at_start(character: str) -> bool:
    """The test of a state that is passed at the start of the text only: no character does."""
    return False


def _at_end(character: str) -> bool:
    """The same for its end."""
    return False


_ANCHORS: Final[dict[Any, Test]] = {
    sre.AT_BEGINNING: _at_start,
    sre.AT_BEGINNING_STRING: _at_start,
    sre.AT_END: _at_end,
    sre.AT_END_STRING: _at_end,
}


def _test(kind: Any, argument: Any, flags: int) -> Test:
    ignore_case = bool(flags & re.IGNORECASE)
    if kind is sre.ANY:
        return (lambda character: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if kind is sre.LITERAL:
        return partial(_in, [(sre.LITERAL, argument)], ignore_case)
    if kind is sre.NOT_LITERAL:
        return partial(_in, [(sre.NEGATE, None), (sre.LITERAL, argument)], ignore_case)
    if kind is sre.IN:
        return partial(_in, argument, ignore_case)
    raise InvalidRegularExpression(f"{str(kind).lower()} is not known to RE2")


def _in(items: list[tuple[Any, Any]], ignore_case: bool, character: str) -> bool:
    forms = {character, character.lower(), character.upper()} if ignore_case else {character}
    wanted = True
    for kind, argument in items:
        if kind is sre.NEGATE:
            wanted = False
        elif any(_is(kind, argument, form) for form in forms if len(form) == 1):
            return wanted
    return not wanted


_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: "0123456789",
    sre.CATEGORY_SPACE: "\t\n\f\r ",
    sre.CATEGORY_WORD: "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
}
"""ASCII, as in RE2."""
_OTHERS: Final = {
    sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
    sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
    sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
}


def _is(kind: Any, argument: Any, character: str) -> bool:
    if kind is sre.LITERAL:
        return bool(ord(character) == argument)
    if kind is sre.RANGE:
        return bool(argument[0] <= ord(character) <= argument[1])
    if argument in _OTHERS:
        return character not in _CATEGORIES[_OTHERS[argument]]
    return character in _CATEGORIES[argument]


def _quoted(pattern: str) -> str:
    r"""Write out `\Q...\E` and `\z`, which Python's parser does not know."""
    parts, position = [], 0
    while position < len(pattern):
        two = pattern[position : position + 2]
        if two == "\\Q":
            end = pattern.find("\\E", position + 2)
            end = len(pattern) if end < 0 else end
            parts.append(re.escape(pattern[position + 2 : end]))
            position = end + 2
        elif two == "\\z":
            parts.append("\\Z")
            position += 2
        elif two == "\\Z":
            raise InvalidRegularExpression("\\Z is not known to RE2")
        else:
            parts.append(two if two.startswith("\\") else pattern[position])
            position += 2 if two.startswith("\\") else 1
    return "".join(parts)
