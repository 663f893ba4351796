"""Only a partition moves the high watermark of its log, and only the quorum that of the metadata log."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ottla"

MAY_MOVE = {
    "replication/partition.py": "the rule of commit",
    "quorum/core.py": "the same of the metadata log",
    "drivers/quorum/quorum_node.py": "what the quorum's core decided",
    "server/legacy/fetch.py": "a field of a row of an answer",
    "storage/log/log.py": "the property itself",
    "storage/log/log_state.py": "it follows the start of the log up, and a truncation down",
    "storage/log/log_loader.py": "a log that is being loaded",
    "storage/recovery/directory_loader.py": "what the checkpoint says of a log that was loaded",
    "storage/log_manager.py": "the same, of one that was offline",
    "storage/future_logs.py": "a copy in another directory that takes the place of its log",
    "server/fetch/partition_read.py": "no log's: a row of an answer",
    "replication/fetch_session.py": "no log's: what a session has told",
    "protocol/fetch_plain.py": "no log's: a row of an answer",
    "simulation/checks/seen_replicas.py": "no log's: what was seen last",
}


def moves(tree: ast.AST) -> list[int]:
    """Lines that assign to an attribute `high_watermark`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.endswith("high_watermark")
    ]


def test_only_a_partition_moves_a_high_watermark() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if moves(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(MAY_MOVE)


def test_each_way_to_move_one_is_found() -> None:
    text = (
        "log.high_watermark = 1\na = self.log.high_watermark = 2\nlog.high_watermark += 1\nx, y.high_watermark = 1, 2"
    )
    assert moves(ast.parse(text)) == [1, 2, 3, 4]
    assert moves(ast.parse("x = log.high_watermark\nhigh_watermark = 1\nlog.high_watermark == 1")) == []
