"""A client of schema registries with Confluent's REST API, this one or another.

Several URLs are tried one after the other; a registry that is away is asked again for some seconds. What was
registered under an id never changes, and is kept.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from ottla.formats.errors import SchemaError
from ottla.http_answers import TooLong
from ottla.schemas import access

RETRY_S = 10.0
REQUEST_TIMEOUT_S = 10.0
"""For a request and all of its answer."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A list of a million subjects has half of it."""
PAUSE_S = 0.2
"""Between two rounds through the URLs."""
REFERENCES_MAX = 1000
"""Schemas that one may reach through references: a ring of them is not to be followed for ever."""
AWAY = (429, 502, 503, 504)
"""HTTP's codes for: ask again."""
NOT_FOUND = 404

P = ParamSpec("P")
T = TypeVar("T")

_USER_INFO: Final = re.compile(r"(https?://)[^/\s,]*@")


class RegistryError(SchemaError):
    """An error of a registry, with its own code (40401: no such subject) and HTTP's."""

    def __init__(self, sentence: str, code: int, http_status: int) -> None:
        super().__init__(sentence)
        self.code, self.http_status = code, http_status


class RegistryUnreachable(OSError):
    """No registry answered."""


@dataclass(frozen=True)
class Reference:
    """A schema that another names: in Protobuf a file, in JSON Schema a URI, in Avro a type."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema's text, its type (AVRO, JSON, PROTOBUF) and the others that it names."""

    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()

    def body(self) -> dict[str, Any]:
        """The body of a request to the REST API."""
        references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in self.references]
        return {"schema": self.text, "schemaType": self.type, "references": references}


@dataclass(frozen=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema


def _schema(answer: Mapping[str, Any]) -> Schema:
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(str(answer["schema"]), str(answer.get("schemaType") or "AVRO"), references)


def _registered(answer: Mapping[str, Any]) -> Registered:
    return Registered(str(answer["subject"]), int(answer["version"]), int(answer["id"]), _schema(answer))


def _formed(method: Callable[P, T]) -> Callable[P, T]:
    """The same method, which raises RegistryError for JSON of another form than the API's."""

    @functools.wraps(method)
    def checked(*given: P.args, **named: P.kwargs) -> T:
        try:
            return method(*given, **named)
        except SchemaError:
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise RegistryError("this is no schema registry: its answer has another form", 0, 200) from error

    return checked


def shown(urls: str) -> str:
    """URLs without the user and password that stand in them."""
    return _USER_INFO.sub(r"\1", urls)


class Registry:
    """Raises RegistryUnreachable, RegistryError from every method."""

    def __init__(self, urls: str, options: Mapping[str, str] | None = None, retry_s: float = RETRY_S) -> None:
        """`urls` are separated by commas; `options` say how they are reached (`access.py`)."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        if not self._urls or any(not url.startswith(("http://", "https://")) for url in self._urls):
            raise SchemaError(f"schema.registry.url: expected http://HOST:PORT,..., got {shown(urls)!r}")
        self._http = access.client_of(urls, options or {}, REQUEST_TIMEOUT_S)
        self._retry_s = retry_s
        self._by_id: dict[int, Schema] = {}

    @classmethod
    def of_options(cls, options: Mapping[str, str], retry_s: float = RETRY_S) -> Registry:
        """A client for options named as in Confluent's clients."""
        return cls(options[access.URL], options, retry_s)

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """One request of the REST API; its answer's JSON."""
        import httpcore
        import httpx

        from ottla.httpx_answers import ask

        end = time.monotonic() + self._retry_s
        while True:
            for url in list(self._urls):
                try:
                    answer = ask(
                        self._http, method, url + path, self._limit_s(), ANSWER_BYTES_MAX, json=body, params=query
                    )
                except httpx.TransportError as error:
                    if isinstance(error.__cause__, httpcore.ConnectError) and (why := _distrust(error)):
                        raise SchemaError(f"{shown(url)}: {why}") from None
                    failure = f"{shown(url)}: {error or type(error).__name__}"
                except (httpx.DecodingError, TooLong) as error:
                    raise SchemaError(f"{shown(url)}: {error}") from None
                else:
                    if answer.status_code not in AWAY:
                        return _content(answer, shown(url))
                    failure = f"{shown(url)}: HTTP {answer.status_code}"
                if len(self._urls) > 1:
                    self._urls.append(self._urls.pop(0))
            if time.monotonic() + PAUSE_S > end:
                raise RegistryUnreachable(f"no schema registry answers: {failure}")
            time.sleep(PAUSE_S)

    def _limit_s(self) -> float:
        """For a request and all of its answer."""
        return REQUEST_TIMEOUT_S

    @_formed
    def by_id(self, schema_id: int) -> Schema:
        """The schema of an id."""
        if schema_id not in self._by_id:
            self._by_id[schema_id] = _schema(self.call("GET", f"/schemas/ids/{schema_id}"))
        return self._by_id[schema_id]

    @_formed
    def version(self, subject: str, version: int | str = "latest") -> Registered:
        """A version of a subject."""
        answer = self.call("GET", f"{_path(subject)}/versions/{version}")
        return _registered(answer)

    @_formed
    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of the schema, which is registered if it was not."""
        return int(self.call("POST", f"{_path(subject)}/versions", schema.body(), **_query(normalize))["id"])

    @_formed
    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """The version that has this schema."""
        answer = self.call("POST", _path(subject), schema.body(), **_query(normalize))
        return _registered(answer)

    @_formed
    def problems(self, subject: str, schema: Schema, version: str | None = None) -> list[str]:
        """Problems that make a schema incompatible with a version of the subject, or with those of its level; empty if
        compatible."""
        path = f"/compatibility{_path(subject)}/versions" + (f"/{version}" if version else "")
        answer = self.call("POST", path, schema.body(), verbose="true")
        if answer["is_compatible"]:
            return []
        return [str(each) for each in answer.get("messages") or ()] or ["it is not compatible"]

    @_formed
    def subjects(self, start: str = "") -> list[str]:
        """Subjects whose name begins so."""
        names = self.call("GET", "/subjects", subjectPrefix=start)
        return sorted(name for name in names if name.startswith(start))

    @_formed
    def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return [int(each) for each in self.call("GET", f"{_path(subject)}/versions")]

    @_formed
    def compatibility(self, subject: str | None = None) -> str:
        """The level of a subject, or of the whole registry."""
        path = "/config" if subject is None else f"/config/{quote(subject, safe='')}"
        query = {} if subject is None else {"defaultToGlobal": "true"}
        return str(self.call("GET", path, **query)["compatibilityLevel"])

    def parts(self, schema: Schema) -> list[tuple[str, str]]:
        """(name, text) of all references of a schema, dependencies first."""
        found: dict[str, str] = {}
        seen: set[Reference] = set()

        def walk(each: Schema) -> None:
            for reference in each.references:
                if reference in seen:
                    continue
                seen.add(reference)
                if len(seen) > REFERENCES_MAX:
                    raise SchemaError(f"a schema refers to more than {REFERENCES_MAX} others")
                other = self.version(reference.subject, reference.version).schema
                walk(other)
                found.setdefault(reference.name, other.text)

        walk(schema)
        return list(found.items())


def _query(normalize: bool) -> dict[str, str]:
    return {"normalize": "true"} if normalize else {}


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _distrust(error: BaseException) -> str | None:
    """Why a certificate is not taken: trying again does not help."""
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}): set schema.registry.ssl.ca.location, or the "
                "client's ssl.truststore.location"
            )
        cause = cause.__cause__ or cause.__context__
    return None


def _content(answer: Any, url: str) -> Any:
    try:
        content = answer.json()
    except (ValueError, RecursionError):
        raise RegistryError(f"{url} is no schema registry: HTTP {answer.status_code}", 0, answer.status_code) from None
    if answer.is_success:
        return content
    problem = content if isinstance(content, dict) else {}
    sentence = str(problem.get("message") or f"HTTP {answer.status_code}")
    if answer.status_code == 401:
        sentence = f"{url} wants a login, or another one: see schema.registry.basic.auth.user.info ({sentence})"
    raise RegistryError(sentence, int(problem.get("error_code") or 0), answer.status_code)
