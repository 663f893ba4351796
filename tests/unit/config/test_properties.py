"""The properties format, against Java's description of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.config.properties import decode_properties, parse_properties


def test_separators_comments_and_blanks() -> None:
    text = """
# a comment
  ! another
a=1
b: 2
c 3
  d  =  4
e
f==x
g = a = b
h=
"""
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "4",
        "e": "",
        "f": "=x",
        "g": "a = b",
        "h": "",
    }


def test_continued_lines() -> None:
    assert parse_properties("a=1,\\\n   2,\\\n   3\nb=4\\\\\nc=5\\") == {"a": "1,2,3", "b": "4\\", "c": "5"}
    assert parse_properties("a=1\\\n# no comment here\nb=2") == {"a": "1# no comment here", "b": "2"}


def test_escapes() -> None:
    assert parse_properties(r"pa\ th\=x=C:\\data\tx\u00e9\q") == {"pa th=x": "C:\\data\tx\u00e9q"}


def test_line_ends_and_the_last_value_of_a_name() -> None:
    assert parse_properties("a=1\r\nb=2\rc=3\na=4") == {"a": "4", "b": "2", "c": "3"}


def test_bytes_of_a_file() -> None:
    assert decode_properties("\ufeffa=é".encode()) == "a=é"
    assert decode_properties(b"a=\xe9") == "a=é"


def escaped(text: str, key: bool) -> str:
    special = "\\=: #!\t\f" if key else "\\\t\f"
    out = "".join(f"\\{char}" if char in special and char not in "\t\f" else char for char in text)
    out = out.replace("\t", "\\t").replace("\f", "\\f").replace("\n", "\\n").replace("\r", "\\r")
    return "\\" + out if not key and out.startswith(" ") else out


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_written_is_read(values: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key, True)}={escaped(value, False)}" for key, value in values.items())
    assert parse_properties(text) == values


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse_properties(text)
