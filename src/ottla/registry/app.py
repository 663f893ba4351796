"""The REST API over HTTP: a Starlette application around the handlers, and changes passed on to the leader."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

import anyio.to_thread
import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.http_answers import TooLong
from ottla.httpx_answers import ask, bounded
from ottla.logs import fields
from ottla.registry import api_errors, records
from ottla.registry.api_errors import ApiError
from ottla.registry.guard import BODY_SECONDS_MAX, Guard
from ottla.registry.handlers import ROUTES, SLOW, WRITES, Handler, Text, already_registered, register
from ottla.registry.handlers import Route as Declared
from ottla.registry.requests import Call
from ottla.registry.rights import SUBJECT, Rights
from ottla.registry.schema_types.parsed import InvalidSchema, MissingLibrary
from ottla.registry.service import Service
from ottla.registry.store import StoreError
from ottla.security.acls import ResourceType
from ottla.server.http.callers import Caller, Unauthorized
from ottla.server.security.permissions import Open

_LOG = logging.getLogger("ottla.registry")

V1_JSON: Final = "application/vnd.schemaregistry.v1+json"
_JSON_TYPES: Final = (V1_JSON, "application/vnd.schemaregistry+json", "application/json")
_REQUEST_TYPES: Final = (*_JSON_TYPES, "application/octet-stream", "")
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""A request that is longer is refused: a schema has to fit into a record of the topic."""
FORWARDED: Final = "x-forward"
"""The header of a request that another instance has passed on: it is not passed on again."""
FORWARDED_FOR: Final = "x-forward-user"
"""The header of such a request with the user that it is of and its address, where his certificate alone says who he is.
It counts only where a super user has sent it."""
FORWARD_TIMEOUT_S: Final = 60.0
"""For the leader, and all of its answer."""
FORWARDED_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""Limit of the leader's answer to a change: a schema at most, in which JSON escapes some characters."""
DECIDED_S: Final = 20.0
"""How long a change waits for the first election."""
CAUGHT_UP_S: Final = 5.0
"""How long an answer of the leader is held back for this instance to have read what was changed."""


class _Found(NamedTuple):
    route: Declared
    parameters: dict[str, str]


class Router:
    """Finds handlers by paths whose parts are decoded one by one: names of subjects may have a slash, as `%2F`."""

    def __init__(self) -> None:
        self._routes = [(each.method, tuple(each.path.split("/")[1:]), each) for each in ROUTES]

    def find(self, method: str, path: str) -> _Found:
        """Raises ApiError 404, 405."""
        parts = path.split("/")[1:]
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        is_known = False
        for of_method, pattern, route in self._routes:
            if len(pattern) != len(parts):
                continue
            if all(wanted == part or wanted.startswith("{") for wanted, part in zip(pattern, parts, strict=True)):
                is_known = True
                if of_method == ("GET" if method == "HEAD" else method):
                    named = zip(pattern, parts, strict=True)
                    parameters = {wanted[1:-1]: unquote(part) for wanted, part in named if wanted.startswith("{")}
                    return _Found(route, parameters)
        raise ApiError(405, "HTTP 405 Method Not Allowed") if is_known else ApiError(404, "HTTP 404 Not Found")


class Application:
    """One instance's HTTP side."""

    def __init__(self, service: Service, guard: Guard) -> None:
        self._service = service
        self._guard = guard
        self._router = Router()
        self._http: tuple[Any, httpx.Client] | None = None
        """What requests are passed on with, and the TLS context that it was made with."""
        self._lock = threading.Lock()

    def close(self) -> None:
        if self._http is not None:
            self._http[1].close()

    def _client(self) -> httpx.Client:
        """A new one when the certificates have changed."""
        with self._lock:
            context = self._guard.client_context
            if self._http is None or self._http[0] is not context:
                made = bounded(httpx.Client(verify=True if context is None else context, trust_env=False))
                self._http = (context, made)
            return self._http[1]

    def starlette(self) -> Starlette:
        methods = ["GET", "POST", "PUT", "DELETE", "PATCH"]
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=methods)])

    async def answer(self, request: Request) -> Response:
        """Whatever happens, an answer in the form of the API."""
        accepted = _accepted(request.headers.get("accept", ""))
        try:
            call, handler = await self._call(request)
            is_slow = handler in SLOW or "format" in call.query
            result = await anyio.to_thread.run_sync(self._do, handler, call) if is_slow else self._do(handler, call)
        except ClientDisconnect:
            return Response(status_code=499)
        except Unauthorized as error:
            return self._unauthorized(str(error), accepted, closes=True)
        except NotLoggedIn:
            return self._unauthorized("log in to use this registry", accepted)
        except ApiError as error:
            return _response({"error_code": error.code, "message": error.message}, error.status, accepted)
        except (InvalidSchema, RecursionError) as error:  # it could be parsed, but is too deep for the form asked for
            known = api_errors.invalid_schema(f"Invalid schema, details: {error}")
            return _response({"error_code": known.code, "message": known.message}, known.status, accepted)
        except (MissingLibrary, StoreError) as error:
            return _response({"error_code": 50001, "message": str(error)}, 500, accepted)
        except Exception as error:
            _LOG.error("a request failed", exc_info=error, extra=fields(method=request.method, path=request.url.path))
            return _response({"error_code": 500, "message": "Internal Server Error"}, 500, accepted)
        return result if isinstance(result, Response) else _response(result, 200, accepted)

    def _unauthorized(self, why: str, kind: str, *, closes: bool = False) -> Response:
        answer = _response({"error_code": 40101, "message": f"Unauthorized: {why}"}, 401, kind)
        for each in () if self._guard.logins is None else self._guard.logins.challenges:
            answer.headers.append("WWW-Authenticate", each)
        if closes:
            answer.headers["Connection"] = "close"
        return answer

    async def _rights(self, request: Request, found: _Found) -> Rights:
        """What the sender may do, once it is seen that this is enough for the route. Raises ApiError, NotLoggedIn,
        Unauthorized."""
        connection = request.scope.get("ottla.connection")
        host = request.client.host if request.client is not None else "localhost"
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            raise ApiError(400, "more than one Authorization")
        try:
            caller = await self._guard.identify(given[0] if given else None, connection, host)
        except OSError as error:
            _LOG.warning("a password cannot be checked", extra=fields(error=str(error)))
            raise ApiError(503, "the brokers cannot be asked for this user now") from error
        if FORWARDED_FOR in request.headers and self._guard.is_super_user(caller):
            principal, _, client = request.headers[FORWARDED_FOR].rpartition("@")
            caller = Caller(principal, client, True)
        request.state.caller = caller
        rights = self._guard.rights_of(caller)
        needs = found.route.needs
        if isinstance(needs, Open):
            return rights
        if not caller.is_known:
            raise NotLoggedIn
        for need in needs:
            if need.kind == ResourceType.CLUSTER:
                rights.require_on_cluster(need.operation)
            elif need.where == SUBJECT:
                rights.require(need.operation, found.parameters[SUBJECT])
        return rights

    async def _call(self, request: Request) -> tuple[Call, Handler]:
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path, query = raw.decode("latin-1"), request.scope["query_string"].decode("latin-1")
        found = self._router.find(request.method, path)
        rights = await self._rights(request, found)
        content = b""
        if request.method in ("POST", "PUT"):
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind not in _REQUEST_TYPES:
                raise ApiError(415, "HTTP 415 Unsupported Media Type")
            try:
                async with asyncio.timeout(BODY_SECONDS_MAX):
                    async for part in request.stream():
                        content += part
                        if len(content) > BODY_BYTES_MAX:
                            raise ApiError(413, f"HTTP 413 the request's body is longer than {BODY_BYTES_MAX} bytes")
            except TimeoutError:
                raise ApiError(408, f"HTTP 408 the request's body took more than {BODY_SECONDS_MAX:g} s") from None
        whole = f"{path}?{query}" if query else path
        values = parse_qs(query, keep_blank_values=True)
        call = Call(
            request.method,
            whole,
            found.parameters,
            values,
            dict(request.headers),
            content,
            rights,
            request.state.caller,
        )
        return call, found.route.handler

    def _do(self, handler: Handler, call: Call) -> Any:
        if handler not in WRITES:
            return handler(self._service, call)
        if handler is register:
            known = already_registered(self._service, call)
            if known is not None:
                return known
        leadership = self._service.leadership
        if not leadership.is_leader():
            leadership.wait_decided(DECIDED_S)
        if leadership.is_leader():
            return self._service.lead(lambda: handler(self._service, call))
        return self._forward(call)

    def _forward(self, call: Call) -> Response:
        """Forward the call to the leader. Raises ApiError."""
        url = self._service.leadership.leader_url()
        if url is None or FORWARDED in call.headers:
            raise api_errors.unknown_leader()
        kept = {
            name: call.headers[name]
            for name in ("accept", "content-type", "confluent-accept-unknown-properties")
            if name in call.headers
        }
        kept |= self._credentials(call)
        try:
            answer = ask(
                self._client(),
                call.method,
                url + call.path,
                FORWARD_TIMEOUT_S,
                FORWARDED_BYTES_MAX,
                content=call.content,
                headers={**kept, FORWARDED: "true"},
            )
        except (httpx.HTTPError, TooLong) as error:
            raise api_errors.forwarding_failed(
                f"Error while forwarding the request to the leader {url}: {error}"
            ) from error
        if answer.is_success:
            # What is asked here next sees what was changed there.
            self._service.topic.wait_to_end(CAUGHT_UP_S)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    def _credentials(self, call: Call) -> dict[str, str]:
        """The user's own credentials, for the leader to ask again. A certificate cannot be passed on: then the leader
        has to take this instance's word for it, which shows its own certificate and is one of its super users."""
        if "authorization" in call.headers:
            return {"authorization": call.headers["authorization"]}
        return {FORWARDED_FOR: f"{call.caller.principal}@{call.caller.host}"} if call.caller is not None else {}


class NotLoggedIn(Exception):
    """A login is needed, and the request brings none."""


def _accepted(accept: str) -> str:
    """The type of the answer: the first of ours that the client names, or the API's own."""
    for each in accept.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind in _JSON_TYPES:
            return kind
    return V1_JSON


def _response(value: Any, status: int, kind: str, headers: Mapping[str, str] | None = None) -> Response:
    content = value.text.encode() if isinstance(value, Text) else b"" if value is None else records.dumps(value)
    return Response(content, status if content else 204, headers, media_type=kind)
