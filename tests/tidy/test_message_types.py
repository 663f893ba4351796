"""Requests and responses are typed: the stubs are what the tool makes, and handlers use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ottla.protocol import schemas
from ottla.protocol.layout import Layout
from ottla.protocol.messages import (
    ApiKey,
    encode_request,
    encode_request_in_steps,
    encode_response,
    request_layout,
    response_layout,
)
from tests import message_keys
from tests.tidy.test_sizes import ROOT, SOURCE
from tools import message_types

HANDLERS = sorted(
    path
    for folder in ("handlers", "controller_handlers")
    for path in (SOURCE / "server" / folder).rglob("*.py")
    if path.name != "__init__.py"
)
STUBS = {"ottla.protocol.schemas.received", "ottla.protocol.schemas.sent"}
BELOW = {
    "clock", "config", "errors", "filesystem", "logs", "memory", "metrics", "model", "network", "page_cache", "steps",
}  # fmt: skip
"""Layers below that of the protocol; import-linter does not see what only mypy reads."""

ANY: dict[str, str] = {
    "alter_configs.py": "settings of two APIs, whose requests are nearly the same",
    "decided.py": "the answer of whichever API the controller has decided on",
}
"""Files of handlers that say `Any`, and why."""


def names_any(path: Path) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(path.read_text())))


def test_the_stubs_are_what_the_tool_makes() -> None:
    for name, text in message_types.rendered().items():
        assert (SOURCE / "protocol" / "schemas" / name).read_text() == text, "python -m tools.message_types"


def test_every_request_and_response_has_its_types() -> None:
    """Attributes of the classes that the reader fills, keys that the writer looks for."""
    received, sent, _ = map(_classes, message_types.rendered().values())
    seen = 0
    for key in ApiKey:
        for layout_of in (request_layout, response_layout):
            for layout in _layouts(_newest(layout_of, key)):
                fields = {field.name for field in (*layout.fields, *layout.tagged, *layout.absent)}
                assert fields in received[layout.cls.__name__] and fields in sent[layout.cls.__name__]
                seen += 1
    assert seen > 400


def _newest(layout_of: object, key: ApiKey) -> Layout:
    for version in range(40, -1, -1):
        try:
            return layout_of(key, version)  # type: ignore[operator, no-any-return]
        except KeyError:
            pass
    raise AssertionError(f"{key.name} has no version")


def _layouts(layout: Layout) -> Iterator[Layout]:
    yield layout
    for field in (*layout.fields, *layout.tagged, *layout.absent):
        if field.layout is not None:
            yield from _layouts(field.layout)


def _classes(text: str) -> dict[str, list[set[str]]]:
    """Kafka's name of a struct -> the fields of each class that is called so, a message's name before it or not."""
    found: dict[str, list[set[str]]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            fields = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
            for start in range(len(node.name)):
                if node.name[start].isupper():
                    found.setdefault(node.name[start:], []).append(fields)
    return found


def test_handlers_take_the_request_of_their_api() -> None:
    seen = 0
    for path in HANDLERS:
        tree = ast.parse(path.read_text())
        marked = [
            (function, decorator.args[0].attr)
            for function in tree.body
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for decorator in function.decorator_list
            if isinstance(decorator, ast.Call) and isinstance(decorator.args[0], ast.Attribute)
        ]
        for function, key in marked:
            name = "".join(word.capitalize() for word in key.split("_"))
            annotation = ast.unparse(function.args.args[1].annotation or ast.Name("nothing"))
            assert annotation.removeprefix("received.") == f"{name}Request", f"{path.name}: {annotation}"
            assert function.returns is not None, path.name
            seen += 1
    assert seen > 90


def test_handlers_do_without_any() -> None:
    assert {path.name for path in HANDLERS if names_any(path)} == set(ANY)


def test_stubs_are_for_mypy_alone() -> None:
    """They are no modules, and none of a layer below may know them."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        checked = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (
                node.module in STUBS or any(f"{node.module}.{each.name}" in STUBS for each in node.names)
            ):
                assert id(node) in checked, f"{path}: import it under TYPE_CHECKING"
                assert path.relative_to(SOURCE).parts[0].removesuffix(".py") not in BELOW, path


def test_keys_that_no_message_has_are_found() -> None:
    """In whatever a test sends, while it runs."""
    encode_request(ApiKey.METADATA, 12, 1, None, {"topics": [{"nmae": "t"}], "topic": 1})
    steps = encode_request_in_steps(ApiKey.HEARTBEAT, 4, 1, None, {"group": "g"})
    assert len(list(steps)) == 0
    expected = {"MetadataRequest.topic", "MetadataRequestTopic.nmae", "HeartbeatRequest.group"}
    assert message_keys.taken() == expected


def test_an_error_may_be_said_to_any_response() -> None:
    encode_response(ApiKey.DELETE_RECORDS, 2, 1, {"error_code": 1, "error_message": "of no use here"})
    assert message_keys.taken() == set()


def test_requests_that_are_written_out_have_keys_that_are_known() -> None:
    """Where a call names an API and has a literal, as in the command line, whose functions ask for any mapping."""
    seen: list[str] = []
    wrong: list[str] = []
    for path in sorted(each for folder in (SOURCE, ROOT / "bench", ROOT / "demo") for each in folder.rglob("*.py")):
        if path.is_relative_to(SOURCE / "protocol"):  # it writes answers
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for place in _asked(function):
                    seen.append(place)
                    wrong += [f"{path}:{each}" for each in place.split() if "!" in each]
    assert not wrong, "\n".join(wrong)
    assert len(seen) > 60


def _asked(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The literals of requests in a function, with the keys that none has."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            assigned.setdefault(ast.unparse(target), []).append(node.value)
    given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    known = {name: values[0] for name, values in assigned.items() if len(values) == 1 and name not in given}
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or "response" in ast.unparse(call):
            continue
        keys = [
            each.attr for each in call.args if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "ApiKey"
        ]
        for literal in [found for each in call.args for found in _literals(each, known)] if len(keys) == 1 else ():
            schema = schemas.schema(schemas.api_message("request", ApiKey[keys[0]]))
            yield f"{literal.lineno} {' '.join(_unknown(literal, schema.fields, known))}"


def _literals(node: ast.expr | None, known: dict[str, ast.expr]) -> Iterator[ast.Dict]:
    if isinstance(node, ast.Name):
        node = known.get(node.id)
    if isinstance(node, ast.Dict):
        yield node
    elif isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _literals(each, known)
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        yield from _literals(node.elt, known)


def _unknown(literal: ast.Dict, fields: tuple[schemas.FieldSchema, ...], known: dict[str, ast.expr]) -> Iterator[str]:
    by_name = {each.name: each for each in fields}
    for key, value in zip(literal.keys, literal.values, strict=True):
        if isinstance(key, ast.Constant):
            field = by_name.get(str(key.value))
            if field is None:
                yield f"{literal.lineno}!{key.value!r}"
            elif field.struct:
                for each in _literals(value, known):
                    yield from _unknown(each, field.fields, known)
