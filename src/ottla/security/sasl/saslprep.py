"""SASLprep (RFC 4013): the one form of names that look the same."""

from __future__ import annotations

import stringprep
from unicodedata import ucd_3_2_0

_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9,
)  # fmt: skip


def saslprep(text: str) -> str:
    """The prepared text, as a query: unassigned code points are allowed. Raises ValueError for what is prohibited."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(prohibits(each) for prohibits in _PROHIBITED):
            raise ValueError(f"character U+{ord(each):04X} is prohibited in a name")
    if any(map(stringprep.in_table_d1, prepared)):  # RFC 3454, chapter 6: text from right to left
        if any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("a name must not mix the directions of writing")
        if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
            raise ValueError("a name from right to left must begin and end with such a character")
    return prepared
