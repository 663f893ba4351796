"""Spark's schema texts without a JVM: `a INT, b ARRAY<STRING>, c STRUCT<d: DECIMAL(10,2)>` to Arrow types.

The types are those that PySpark's `to_arrow_type` gives for the same names, so that columns fit without a cast.
"""

from __future__ import annotations

import re

import pyarrow as pa

from ottla.formats.errors import SchemaError

TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([\w.$-]+)|('(?:[^'\\]|\\.)*')|([<>(),:]))")

SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

DECIMAL_PRECISION_MAX = 38  # of Spark, and of Arrow's decimal128
DEPTH_MAX = 100
"""Types within types: a text cannot use up the stack."""


def type_of_ddl(text: str) -> pa.DataType:
    """The type of `text`: columns (`a INT, b STRING`) are a struct, as is `STRUCT<...>`; a lone type is itself.

    All fields are nullable, as those of Spark's `from_json` are: NOT NULL and COMMENT are read and left out.
    Raises SchemaError.
    """
    parser = _Parser(text)
    if len(parser.tokens) == 1 or (len(parser.tokens) > 1 and parser.tokens[1] in ("<", "(")):
        found = parser.type_()
    else:
        found = pa.struct(parser.fields())
    parser.end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[str] = []
        self._at = 0
        self._depth = 0
        place = 0
        stop = len(text.rstrip())
        while place < stop:
            match = TOKEN.match(text, place)
            if match is None:
                raise SchemaError(f"{text[place : place + 20].strip()!r} cannot be parsed in the schema {text!r}")
            self.tokens.append(match.group().strip())
            place = match.end()

    def _peek(self) -> str:
        return self.tokens[self._at] if self._at < len(self.tokens) else ""

    def _take(self, wanted: str = "") -> str:
        token = self._peek()
        if (wanted and token != wanted) or not token:
            raise SchemaError(
                f"{wanted or 'a name'} is expected before {token or 'the end'} in the schema {self._text!r}"
            )
        self._at += 1
        return token

    def end(self) -> None:
        if self._peek():
            raise SchemaError(f"{self._peek()!r} is unexpected in the schema {self._text!r}")

    def fields(self, close: str = "") -> list[pa.Field]:
        """`name type` or `name: type`, with commas between, up to `close`."""
        found: dict[str, pa.Field] = {}
        while self._peek() != close or not found:
            name = self._name()
            if name in found:
                raise SchemaError(f"{name!r} appears twice in the schema {self._text!r}")
            if self._peek() == ":":
                self._take()
            found[name] = pa.field(name, self.type_())
            self._constraints()
            if self._peek() != ",":
                break
            self._take()
        return list(found.values())

    def _constraints(self) -> None:
        if self._peek().lower() == "not":
            self._take()
            if self._take().lower() != "null":
                raise SchemaError(f"NULL is expected after NOT in the schema {self._text!r}")
        if self._peek().lower() == "comment":
            self._take()
            if not self._take().startswith("'"):
                raise SchemaError(f"a quoted text is expected after COMMENT in the schema {self._text!r}")

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise SchemaError(f"{token!r} is not a name (put `...` around it) in the schema {self._text!r}")
        return token

    def type_(self) -> pa.DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SchemaError(f"types nested more than {DEPTH_MAX} deep in the schema")
        name = self._take().lower()
        found = self._nested(name)
        self._depth -= 1
        return found

    def _nested(self, name: str) -> pa.DataType:
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name in ("varchar", "char"):
            self._numbers()
            return pa.string()
        if name not in ("array", "map", "struct"):
            if name not in SIMPLE:
                raise SchemaError(f"{name!r} is not a type that can be read, in the schema {self._text!r}")
            return SIMPLE[name]
        self._take("<")
        if name == "array":
            found = pa.list_(self.type_())
        elif name == "map":
            key = self.type_()
            if key != pa.string():
                raise SchemaError("the keys of a MAP are STRING in Avro and JSON")
            self._take(",")
            found = pa.map_(key, self.type_())
        else:
            found = pa.struct(self.fields(">") if self._peek() != ">" else [])
        self._take(">")
        return found

    def _numbers(self) -> list[int]:
        found = []
        self._take("(")
        while True:
            token = self._take()
            if not (token.isascii() and token.isdigit() and len(token) < 9):
                raise SchemaError(f"{token!r} is not a number in the schema {self._text!r}")
            found.append(int(token))
            if self._peek() != ",":
                break
            self._take()
        self._take(")")
        return found

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            numbers = self._numbers()
            precision, scale = (*numbers, 0)[:2]
            if len(numbers) > 2 or not (0 < precision <= DECIMAL_PRECISION_MAX and scale <= precision):
                raise SchemaError(f"DECIMAL{tuple(numbers)} is out of range: precision 1 to 38, scale up to precision")
        return pa.decimal128(precision, scale)
