"""Code must not ask a timer of the event loop for its time: uvloop's `call_at` and `call_later` give a plain handle,
which has none, for what is due within half a millisecond. Who needs to know remembers the deadline.
"""

from __future__ import annotations

import ast

from tests.tidy.test_roads import sources


def asks_for_its_time(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        return isinstance(node.func, ast.Attribute) and node.func.attr == "when"
    return isinstance(node, ast.Attribute) and node.attr in ("TimerHandle", "_when")


def test_a_handle_is_only_cancelled() -> None:
    assert asks_for_its_time(ast.parse("timer.when()", mode="eval").body)
    assert not [
        f"{name}:{node.lineno}" for name, tree in sources() for node in ast.walk(tree) if asks_for_its_time(node)
    ]  # type: ignore[attr-defined]


def test_the_walk_sees_the_timers() -> None:
    """It would find nothing if there were none."""
    timers = [
        node
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("call_at", "call_later")
    ]
    assert len(timers) > 30
