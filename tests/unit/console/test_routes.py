"""Parameters of pages, and that the OpenAPI document is of exactly the routes that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from ottla.console import openapi, views
from ottla.console.acts import serving
from ottla.console.acts.act import Outcome
from ottla.console.app import Application
from ottla.console.asking import Invalid, Site
from ottla.console.masks import Masks
from ottla.console.routes import API, DOWNLOAD, OFFSET_MAX, PAGES
from tests.unit.console.fake_cluster import user

BY_NAME = {each.name: each for each in (*PAGES, DOWNLOAD)}


def test_defaults_and_values() -> None:
    found = BY_NAME["topics"].parameters({}, {"q": "ord", "page": "3"})
    assert found == {"q": "ord", "sort": "name", "order": "asc", "page": 3, "internal": "no"}
    assert BY_NAME["topics"].parameters({}, {"page": ""})["page"] == 1
    assert BY_NAME["messages"].parameters({"topic": "t"}, {"offset": str(OFFSET_MAX)})["offset"] == OFFSET_MAX


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("topics", {"page": "0"}),
        ("topics", {"page": "-1"}),
        ("topics", {"page": "1e3"}),
        ("topics", {"page": "１"}),
        ("topics", {"page": "9" * 30}),
        ("topics", {"sort": "size"}),
        ("topics", {"nothing": "1"}),
        ("topics", {"q": "x" * 1001}),
        ("messages", {"offset": str(OFFSET_MAX + 1)}),
        ("messages", {"limit": "201"}),
        ("messages", {"seconds": "31"}),
        ("messages", {"from": "middle"}),
        ("content", {"offset": "1"}),
        ("content", {"partition": "", "offset": "1"}),
    ],
)
def test_what_cannot_be(page: str, query: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        BY_NAME[page].parameters({"topic": "t"}, query)


def routed() -> set[str]:
    """Paths of the API that the application routes."""
    application = Application(Site(Masks()), anonymous=user()).asgi()
    starlette: Starlette = application._app  # type: ignore[attr-defined]
    paths = {each.path.replace(":any}", "}") for each in starlette.routes if isinstance(each, Route)}
    return {each for each in paths if each.startswith(API)}


def test_the_document_is_of_the_routes() -> None:
    document = openapi.document("1", serving.served(Site(Masks())))
    assert set(document["paths"]) == routed() - {f"{API}/openapi.json"}
    for path, operations in document["paths"].items():
        operation = operations["post" if "/acts/" in path or path.endswith("/stop") else "get"]
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert named == {each.strip("{}") for each in path.split("/") if each.startswith("{")}
    names = [each["operationId"] for operations in document["paths"].values() for each in operations.values()]
    assert len(names) == len(set(names))


def test_the_types_of_answers_have_one_name_each() -> None:
    """Two dataclasses of one name would share a schema, and one of them would be wrong."""
    import dataclasses
    import typing

    found: dict[str, type] = {}

    def walk(kind: object) -> None:
        for each in typing.get_args(kind):
            walk(each)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            assert found.setdefault(kind.__name__, kind) is kind
            for each in typing.get_type_hints(kind).values():
                walk(each)

    walk(Outcome)
    for page in PAGES:
        walk(page.answer)
    assert len(found) > 20


STATIC = Path(views.__file__).parents[1] / "static"
OWN_FILES = {"icon.svg", "search.js", "style.css", "tail.js", "times.js"}
"""What browsers load, all written here. A file of others would come with its licence and its hash in this table."""
SCRIPT_BYTES_MAX = 100_000


def test_scripts_are_small_and_their_own() -> None:
    files = {each.name: each.read_text() for each in STATIC.iterdir()}
    assert files.keys() == OWN_FILES
    scripts = {name: text for name, text in files.items() if name.endswith(".js")}
    assert sum(len(text.encode()) for text in scripts.values()) < SCRIPT_BYTES_MAX
    for name, text in scripts.items():
        for imported in re.findall(r"(?:^import|\bimport\(|\bfrom)\s*[\"']([^\"']*)", text, re.MULTILINE):
            assert imported.removeprefix("./") in scripts, name
    pages = [each.read_text() for each in (STATIC.parent / "templates").iterdir()]
    address = re.compile('(?:src|href)="(/static/[^"]*|[^"]*//[^"]*)"')
    loaded = {found for text in pages for found in address.findall(text)}
    assert loaded == {f"/static/{name}" for name in OWN_FILES}
