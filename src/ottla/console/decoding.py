"""Bytes of a record as people read them: JSON, text, or hex; by the schema registry where there is one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.console import hung
from ottla.console.brokers import is_patient, patiently
from ottla.console.masks import HIDDEN, How, TopicMask
from ottla.schemas import access
from ottla.schemas.client import REQUEST_TIMEOUT_S, Registry, RegistryUnreachable
from ottla.schemas.client import shown as shown_urls

if TYPE_CHECKING:
    from ottla.schemas.client import Schema

FORMATS: Final = ("auto", "json", "text", "hex")
SHOWN_MAX: Final = 4096
"""Characters of a key, value or header that a page has; of hex so many bytes' share."""
PARSED_BYTES_MAX: Final = 1024 * 1024
"""What is larger is not parsed for a page."""
HEX_ROW: Final = 16
HEX_BYTES_MAX: Final = 1024
SCHEMAS_MAX: Final = 1_000
_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5
_PLAIN_CONTROLS: Final = frozenset("\t\n\r")


@dataclass(frozen=True)
class Shown:
    """A key, a value or a header."""

    kind: str
    """null, empty, text, json, hex, avro, protobuf, json schema, or masked."""
    text: str
    bytes: int
    is_cut: bool = False
    """Whether there is more than `text` has."""
    note: str = ""
    """What else there is to say, such as the id of the schema."""


Decode = Callable[[bytes], tuple[str, str, str]]
"""(kind, JSON text, note) for bytes behind a schema's id. Raises ValueError."""


class _Patience:
    """How long a page still waits for the registry: calls at the same time count once."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._lock = threading.Lock()
        self._running = 0
        self._since = 0.0

    @property
    def left_s(self) -> float:
        with self._lock:
            return self._left_s - (time.monotonic() - self._since if self._running else 0.0)

    @contextmanager
    def spent(self) -> Iterator[None]:
        with self._lock:
            if not self._running:
                self._since = time.monotonic()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._left_s -= time.monotonic() - self._since


_WHOLE: Final = 0.9
"""A request that had so much of ANSWER_S, and no answer, says that the registry hangs."""
_LIMIT_S_MIN: Final = 0.01
_PATIENCE: Final = ContextVar[_Patience | None]("patience", default=None)


@contextmanager
def for_a_page() -> Iterator[None]:
    """All that is asked of a `PageRegistry` in the block takes ANSWER_S together: a registry that answers each of many
    requests slowly costs a page no more than one that hangs."""
    token = _PATIENCE.set(_Patience(hung.ANSWER_S))
    try:
        yield
    finally:
        _PATIENCE.reset(token)


class PageRegistry(Registry):
    """A registry that costs pages no more than a broker does (`hung.py`): one that hangs, or cannot be reached, is
    waited for once, and asked again in the background. Changes, and what is asked `patiently`, wait longer."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options[access.URL], options, retry_s=0)
        self._at = shown_urls(options[access.URL]), 0
        self._executor = ThreadPoolExecutor(1, "console registry")
        self._hung = hung.HungNodes(self._executor)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        super().close()

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        if method != "GET" and not path.startswith("/compatibility/"):
            with patiently():
                return super().call(method, path, body, **query)
        silent_s = self._hung.seconds(self._at)
        if silent_s is not None:
            at, seconds = self._at[0], round(silent_s)
            raise RegistryUnreachable(f"{at} has not answered for {seconds} s, and is asked again in the background")
        patience = None if is_patient() else _PATIENCE.get()
        left_s = hung.ANSWER_S if patience is None else patience.left_s
        slow = f"{self._at[0]} is slow, and the page did not wait for all of it: load it again"
        if left_s <= 0:
            raise RegistryUnreachable(slow)
        try:
            with nullcontext() if patience is None else patience.spent():
                return super().call(method, path, body, **query)
        except RegistryUnreachable as error:
            if patience is not None and left_s < _WHOLE * hung.ANSWER_S and patience.left_s <= _LIMIT_S_MIN:
                raise RegistryUnreachable(slow) from error  # it had less time than a registry that hangs
            self._hung.add(self._at, lambda: self._is_away(method, path, body, query))
            raise

    def _is_away(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> bool:
        try:
            with patiently():
                super().call(method, path, body, **query)
        except RegistryUnreachable:
            return True
        except Exception:  # whatever it says, it answers
            return False
        return False

    def _limit_s(self) -> float:
        """Several URLs are asked one after the other, and a page waits for all of them together."""
        if is_patient():
            return REQUEST_TIMEOUT_S
        patience = _PATIENCE.get()
        limit_s = hung.ANSWER_S if patience is None else max(_LIMIT_S_MIN, min(hung.ANSWER_S, patience.left_s))
        return limit_s / len(self._urls)


class Schemas:
    """Decodes values of Confluent's wire format with the schemas of a registry, which are kept. For any thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._codecs: dict[int, Any] = {}

    def decode(self, data: bytes) -> tuple[str, str, str]:
        """Raises ValueError for what the registry does not know or the schema does not fit."""
        schema_id = int.from_bytes(data[1:_PREFIX_BYTES], "big")
        with self._lock:
            found = self._codecs.get(schema_id)
            if found is None:
                found = self._known(schema_id)
                if len(self._codecs) >= SCHEMAS_MAX:
                    self._codecs.pop(next(iter(self._codecs)))
                self._codecs[schema_id] = found
        kind, codec = found
        return kind, codec.to_text(data[_PREFIX_BYTES:]), f"schema {schema_id}"

    def _known(self, schema_id: int) -> tuple[str, Any]:
        from ottla.formats.errors import SchemaError
        from ottla.schemas.json_codecs import codec_of

        try:
            schema: Schema = self._registry.by_id(schema_id)
            kind = {"AVRO": "avro", "PROTOBUF": "protobuf"}.get(schema.type, "json schema")
            return kind, codec_of(schema, self._registry.parts(schema))
        except (SchemaError, OSError, ImportError) as error:
            raise ValueError(f"schema {schema_id}: {error}") from error


def shown(data: bytes | None, how: str, mask: TopicMask, decode: Decode | None, *, hidden: How | None = None) -> Shown:
    """A part of a record. `hidden` hides it whole. The size of what is masked is that of what is shown: the length of
    a secret would tell of it."""
    if data is None:
        return Shown("null", "", 0)
    if hidden is not None:
        return _masked("masked", hidden.shown(data), "hidden by a mask")
    if not data:
        return Shown("empty", "", 0)
    kind, text, value, note = _parsed(data, how, decode)
    if mask.fields:
        # A number or a text alone has no fields either.
        if value is None or not isinstance(value[0], dict | list):
            return _masked("masked", HIDDEN, "hidden by a mask: its fields are not known")
        return _masked("json" if kind in ("text", "hex") else kind, _json(mask.masked(value[0])), note)
    if value is not None and how != "text":
        text = _json(value[0])
    if how == "hex":
        kind, text = "hex", hex_rows(data[:HEX_BYTES_MAX])
        return Shown(kind, text, len(data), len(data) > HEX_BYTES_MAX, note)
    if kind == "hex":
        return Shown(kind, hex_rows(data[:HEX_BYTES_MAX]), len(data), len(data) > HEX_BYTES_MAX, note)
    return Shown(kind, text[:SHOWN_MAX], len(data), len(text) > SHOWN_MAX, note)


def _masked(kind: str, text: str, note: str) -> Shown:
    """Nothing in it is of the bytes themselves, whatever format was asked for."""
    return Shown(kind, text[:SHOWN_MAX], len(text.encode(errors="replace")), len(text) > SHOWN_MAX, note)


def _parsed(data: bytes, how: str, decode: Decode | None) -> tuple[str, str, tuple[Any] | None, str]:
    """(kind, text, JSON value, note); the value is in a tuple, as None is one."""
    note = ""
    if how in ("auto", "json") and decode is not None and len(data) >= _PREFIX_BYTES and data[0] == _MAGIC:
        try:
            kind, text, note = decode(data)
            return kind, text, (json.loads(text),), note
        except (ValueError, RecursionError) as error:
            note = f"not decoded: {str(error)[:200]}"
    if how == "text":
        text = data[: PARSED_BYTES_MAX + 1].decode(errors="replace")
        return "text", text, _loaded(data), note
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "hex", "", None, note
    value = _loaded(data)
    if value is not None and (how == "json" or text.lstrip()[:1] in ("{", "[")):
        return "json", text, value, note
    if any(character < " " and character not in _PLAIN_CONTROLS for character in text[:SHOWN_MAX]):
        return "hex", "", value, note
    return "text", text, None, note


def _loaded(data: bytes) -> tuple[Any] | None:
    if len(data) > PARSED_BYTES_MAX:
        return None
    try:
        return (json.loads(data),)
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return HIDDEN


def hex_rows(data: bytes) -> str:
    """`00000000  68 69                                            |hi|`, a row for every 16 bytes."""
    rows = []
    for start in range(0, len(data), HEX_ROW):
        part = data[start : start + HEX_ROW]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  |{plain}|")
    return "\n".join(rows)
