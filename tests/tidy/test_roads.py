"""Allowed ways of access: the controller is changed by requests only, images by committed records only, pure cores by
calls only, and nothing pure reads settings that change under it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ottla"

ASK_THE_CONTROLLER = {
    "drivers/controller/controller_channel.py": "the road of a broker, while the active controller is in its process",
    "drivers/controller/controller_activation.py": "its first decisions",
    "drivers/metadata/metadata_services.py": "puts the parts together",
    "server/node.py": "puts the parts together",
    "drivers/zookeeper/controller_part.py": "the controller's own part, beside deciding",
    "drivers/zookeeper/tool_requests.py": "the same: wishes of old tools, which no listener hears",
    "server/controller_handlers/decided.py": "the end of the road: a request that came over the wire",
    "server/controller_handlers/envelope.py": "whether it is active",
}
"""Everybody else has a `ControllerChannel`."""

REPLAY = {
    "metadata/loader.py": "committed records, for the publisher",
    "drivers/controller/active_controller.py": "its own records, into the image that only its decisions see",
    "znodes/reading.py": "records of a tree of znodes, which no node runs on",
}
LOAD = {"drivers/metadata/metadata_publisher.py", "migration/metadata_image.py"}
STAGE = {"drivers/controller/active_controller.py"}

ROADS = {"to_controller", "forwarded", "send", "call", "decided", "request"}
"""What a request is handed to."""


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders or ("",):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> set[str]:
    """`module.name` of all that is imported, for its type too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def reaches_controller(tree: ast.AST) -> bool:
    """Names the class, or takes the object out of the metadata parts."""
    return "ottla.drivers.controller.active_controller.ActiveController" in imported(tree) or any(
        isinstance(node, ast.Attribute) and node.attr == "controller" and ast.unparse(node.value).endswith("metadata")
        for node in ast.walk(tree)
    )


def functions_handed_over(tree: ast.AST) -> list[int]:
    """Lines where a road to the controller is given a function: it could not travel."""
    own = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            given = [*node.args, *(each.value for each in node.keywords)]
            if name in ROADS and any(
                isinstance(each, ast.Lambda) or (isinstance(each, ast.Name) and each.id in own) for each in given
            ):
                found.append(node.lineno)
    return found


def changes_of_a_core(tree: ast.AST) -> list[str]:
    """What is done to a pure core from outside but call it: assignments in it, looks at what is private."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            inside = ast.unparse(node.value).split(".")
            of_a_core = "core" in inside[1:] or inside == ["core"]
            if of_a_core and (isinstance(node.ctx, ast.Store | ast.Del) or node.attr.startswith("_")):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_the_controller_is_asked_by_requests_alone() -> None:
    found = {
        name
        for name, tree in sources()
        if name != "drivers/controller/active_controller.py" and reaches_controller(tree)
    }
    assert found == set(ASK_THE_CONTROLLER)
    assert not [name for name in found if name.startswith("server/handlers/")]


def test_no_handler_hands_the_controller_a_function() -> None:
    looked_at = 0
    found: list[str] = []
    for name, tree in sources("server"):
        looked_at += sum(
            isinstance(each, ast.Name) and each.id in ("to_controller", "forwarded", "decided")
            for each in ast.walk(tree)
        )
        found += [f"{name}:{line}" for line in functions_handed_over(tree)]
    assert looked_at > 15
    assert found == []


def test_only_committed_records_come_into_the_image() -> None:
    """The publisher reads below the high watermark; the controller beside it replays for its own decisions and leaves
    the deltas there, to be published once they are committed."""
    replaying: set[str] = set()
    loading: set[str] = set()
    staging: set[str] = set()
    for name, tree in sources():
        names = imported(tree)
        if "ottla.metadata.replay.replay" in names:
            replaying.add(name)
        if "ottla.metadata.loader.MetadataLoader" in names:
            loading.add(name)
        if any(isinstance(node, ast.Attribute) and node.attr == "begin_staging" for node in ast.walk(tree)):
            staging.add(name)
    assert (replaying, loading, staging) == (set(REPLAY), LOAD, STAGE)


def test_only_a_core_changes_its_state() -> None:
    calls = 0
    found: list[str] = []
    for name, tree in sources("drivers", "server", "cli"):
        calls += sum(isinstance(node, ast.Attribute) and node.attr == "core" for node in ast.walk(tree))
        found += [f"{name}:{each}" for each in changes_of_a_core(tree)]
    assert calls > 60
    assert found == []


def test_nothing_pure_reads_settings_that_change_under_it() -> None:
    """`ServerConfig` follows the metadata; what pure packages are given stays as it was (`EffectiveConfig`, values)."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (each["source_modules"] for each in contracts if each["type"] == "forbidden")
    folders = [each.removeprefix("ottla.") for each in pure if (ROOT / "src" / each.replace(".", "/")).is_dir()]
    assert {"controller", "coordinator", "replication", "metadata", "quorum"} <= set(folders)
    looked_at = 0
    found: list[str] = []
    for name, tree in sources(*(each for each in folders if each != "config")):
        looked_at += 1
        found += [name] if any(each.startswith("ottla.config.server") for each in imported(tree)) else []
        found += [
            f"{name}: {node.id}" for node in ast.walk(tree) if isinstance(node, ast.Name) and "ServerConfig" in node.id
        ]
    assert looked_at > 50
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["self.core.own = 1", "node.core.voters.x = 1", "core.epoch += 1", "node.core._persisted", "del core.x"],
)
def test_a_change_of_a_core_is_found(text: str) -> None:
    assert changes_of_a_core(ast.parse(text))


def test_what_crosses_the_border_is_found() -> None:
    assert functions_handed_over(ast.parse("channel.send(key, lambda image: 1)"))
    assert functions_handed_over(ast.parse("def f(image): ...\nto_controller(context, asked=f)"))
    assert not functions_handed_over(ast.parse("to_controller(context, asked)"))
    assert reaches_controller(ast.parse("self.node.metadata.controller.request(1, {})"))
    assert reaches_controller(ast.parse("from ottla.drivers.controller.active_controller import ActiveController"))
    assert not reaches_controller(ast.parse("node.channel.send(1, {})"))
    assert not changes_of_a_core(ast.parse("self.core = QuorumCore.of()\nself.core.on_flushed(1)"))
