"""The OpenAPI document of the API, made of the table of pages and of the types of their answers."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.console.acts.act import Act, Outcome
from ottla.console.asking import Problem
from ottla.console.parameters import Parameter
from ottla.console.routes import API, EVENTS, FILES, PAGES, Page
from ottla.console.tokens import NAME_MAX
from ottla.console.views.messages import Message

VERSION: Final = "3.1.0"
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def document(version: str, acts: Sequence[Act] = ()) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {each.api_path: {"get": _operation(each, schemas)} for each in PAGES}
    paths |= {each.api_path: {"get": _download(each)} for each in FILES}
    paths |= _searches()
    paths[EVENTS.api_path] = {"get": _events(schemas)}
    paths |= {API + each.path: {"post": _act(each, schemas)} for each in acts}
    return {
        "openapi": VERSION,
        "info": {
            "title": "Ottla console",
            "version": version,
            "description": "What the console's pages show, as JSON. Offsets and counts of records are texts, as they "
            "may be larger than a number of JavaScript. Where the cluster asks for a login, send name and "
            "password by HTTP Basic, or a token of an identity provider; the cluster's ACLs and the console's roles "
            "decide what is answered.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(page: Page, schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": page.name,
        "summary": page.what,
        "parameters": _parameters(page),
        "responses": {"200": _ok(page.answer, schemas), **_errors()},
    }


def _act(act: Act, schemas: dict[str, Any]) -> dict[str, Any]:
    properties = {each.name: {**_values(each), "description": each.what} for each in act.fields}
    required = [each.name for each in act.fields if each.is_required]
    if act.confirm:
        same = f"The same as {act.confirm}: the act destroys something. Not needed for a preview."
        properties["confirm"] = {"type": "string", "description": same}
    properties["preview"] = {"type": "boolean", "description": "Only say what would happen."}
    properties["once"] = {
        "type": "string",
        "maxLength": NAME_MAX,
        "description": "A name for this request: a second one of the same name has the outcome of the first, and does "
        "nothing (among the last requests of the user).",
    }
    body = {"type": "object", "required": required, "additionalProperties": False, "properties": properties}
    errors = {
        **_errors(),
        "409": {**_errors()["400"], "description": "It was not done, or only a part; see the error."},
    }
    return {
        "operationId": act.name,
        "summary": act.what,
        "description": f"Needs {act.needs}. Names and passwords are sent with each request; cookies are not taken.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _ok(Outcome, schemas), **errors},
    }


def _ok(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["data", "problems", "age_s"],
        "additionalProperties": False,
        "properties": {
            "data": _schema(kind, schemas),
            "problems": {
                "type": "object",
                "description": "Why parts of the answer are missing, by part.",
                "additionalProperties": _schema(Problem, schemas),
            },
            "age_s": {"type": "number", "description": "Age of what was kept and is shown again."},
        },
    }
    return {"description": "OK", "content": {"application/json": {"schema": answer}}}


def _download(page: Page) -> dict[str, Any]:
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {
        "operationId": page.name,
        "summary": page.what,
        "parameters": _parameters(page),
        "responses": {"200": {"description": "The bytes", "content": binary}, **_errors()},
    }


def _events(schemas: dict[str, Any]) -> dict[str, Any]:
    row = json.dumps(_schema(Message, schemas))
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": EVENTS.name,
        "summary": EVENTS.what,
        "description": "Events `records` have as data an object with `rows` (each " + row + "), `scanned`, `skipped` "
        "(records that were passed over, as there were too many), `problem`, `silent` (`partitions` of which nothing "
        "is known at the moment, and `why`) and `back` (those that were silent before); the id of an event is where to "
        "go on, as `at` or as the header Last-Event-ID. After the event `over` there are no more.",
        "parameters": _parameters(EVENTS),
        "responses": {"200": {"description": "Events without an end", "content": stream}, **_errors()},
    }


def _searches() -> dict[str, Any]:
    """How far a reading is, and its end."""
    run = {
        "name": "run",
        "in": "path",
        "required": True,
        "description": "The id that the reading was begun with.",
        "schema": {"type": "string", "minLength": 8, "maxLength": 64},
    }
    progress = {
        "type": "object",
        "required": ["scanned", "bytes", "seconds"],
        "additionalProperties": False,
        "properties": {
            "scanned": {"type": "string", "description": "Records that were read."},
            "bytes": {"type": "string", "description": "Bytes that were read; 0 for a query in SQL."},
            "seconds": {"type": "number", "description": "For how long."},
        },
    }
    found = {"description": "OK", "content": {"application/json": {"schema": progress}}}
    over = {"404": {**_errors()["404"], "description": "There is no such reading, or it is over."}}
    return {
        f"{API}/searches/{{run}}": {
            "get": {
                "operationId": "search_progress",
                "summary": "How far a search or a query of yours is.",
                "parameters": [run],
                "responses": {"200": found, **_errors(), **over},
            },
        },
        f"{API}/searches/{{run}}/stop": {
            "post": {
                "operationId": "search_stop",
                "summary": "End a search or a query of yours: its answer has what was found until then.",
                "parameters": [run],
                "responses": {"204": {"description": "It ends, or it is over."}, **_errors()},
            },
        },
    }


def _errors() -> dict[str, Any]:
    properties = {
        "error": {"type": "string"},
        "code": {"type": "string", "description": "The protocol's error code."},
        "field": {"type": "string", "description": "The parameter of an act that the error is about."},
    }
    schema = {"type": "object", "required": ["error"], "properties": properties}
    content = {"application/json": {"schema": schema}}
    return {
        "400": {"description": "A parameter has a value that cannot be.", "content": content},
        "401": {"description": "The cluster asks for a login.", "content": content},
        "403": {"description": "The user lacks a right or a role, which the error names.", "content": content},
        "404": {"description": "There is no such thing, or the user may not see it.", "content": content},
        "503": {"description": "No broker answers.", "content": content},
    }


def _parameters(page: Page) -> list[dict[str, Any]]:
    return [
        *(
            {"name": each.name, "in": "path", "required": True, "description": each.what, "schema": _values(each)}
            for each in page.inside
        ),
        *(
            {
                "name": each.name,
                "in": "query",
                "required": each.is_required,
                "description": each.what,
                "schema": _values(each),
            }
            for each in page.query
        ),
    ]


def _values(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string", "maxLength": parameter.length_max}
    if parameter.low is not None:
        found = {"type": "integer", "format": "int64", "minimum": parameter.low, "maximum": parameter.high}
    if parameter.choices:
        found = {"type": "string", "enum": [each for each in parameter.choices if each]}
    if parameter.default != "":
        found["default"] = parameter.default
    return found


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; a dataclass is one by its name."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        name = kind.__name__
        if name not in schemas:
            schemas[name] = {}
            hints = typing.get_type_hints(kind)
            names = [each.name for each in dataclasses.fields(kind)]
            schemas[name] = {
                "type": "object",
                "required": names,
                "additionalProperties": False,
                "properties": {each: _schema(hints[each], schemas) for each in names},
            }
        return {"$ref": f"#/components/schemas/{name}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], schemas)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_schema(each, schemas) for each in arguments]}
    if kind is type(None):
        return {"type": "null"}
    return {"type": _PLAIN[kind]}
