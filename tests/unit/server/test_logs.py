"""What a node logs, in both forms, and at which levels."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import logs
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.drivers.coordinators.group_coordinator import EpochLog
from ottla.protocol.messages import ApiKey
from ottla.server.log_levels import alter_log_levels
from tests.unit.server.http.test_http_metrics import commit, join
from tests.unit.server.node import Client, batch, running
from tests.unit.server.stub import run

LOG = logging.getLogger("ottla.test")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def own_logging() -> Iterator[None]:
    """The process's logging is put back afterwards."""
    handlers, level = list(logging.root.handlers), logging.root.level
    factory, source = logging.getLogRecordFactory(), logging._srcfile
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.setLogRecordFactory(factory)
    logging._srcfile = source


def test_text(own_logging: None, capsys: Any) -> None:
    logs.configure("text", "INFO")
    LOG.info("topic created", extra=logs.fields(topic="a", partitions=3, why="two words", empty="", nothing=None))
    LOG.debug("not logged")
    LOG.warning("%d left", 2)
    first, second = capsys.readouterr().err.splitlines()
    form = TIME + r' INFO ottla\.test: topic created topic=a partitions=3 why="two words" empty=""'
    assert re.fullmatch(form, first)
    assert second.endswith(" WARN ottla.test: 2 left")


def test_json_one_object_a_line_whatever_happens(own_logging: None, capsys: Any) -> None:
    logs.configure("json", "DEBUG")
    LOG.info("a\nline", extra=logs.fields(topic='"\n', level="mine", when=object))
    try:
        raise ValueError("lines\nof trouble")
    except ValueError:
        LOG.exception("failed")
    event, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert (event["level"], event["logger"], event["event"], event["topic"]) == ("INFO", "ottla.test", "a\nline", '"\n')
    assert re.fullmatch(TIME, event["timestamp"])
    assert failed["level"] == "ERROR" and "ValueError: lines\nof trouble" in failed["exception"]


def test_records_have_what_formats_of_others_name(own_logging: None) -> None:
    """A library of the process may bring a handler of its own."""
    attributes = set(vars(logging.makeLogRecord({})))
    logs.configure("text", "INFO")
    found: list[logging.LogRecord] = []
    keeper = logging.Handler()
    keeper.emit = found.append  # type: ignore[method-assign]
    logging.root.addHandler(keeper)
    LOG.warning("%(left)d of %(all)d left", {"left": 2, "all": 3})
    LOG.warning("%d left", 2)
    (by_name, record) = found
    assert attributes <= vars(record).keys()
    assert (by_name.getMessage(), record.getMessage(), record.levelname) == ("2 of 3 left", "2 left", "WARNING")
    logging.Formatter("%(asctime)s %(filename)s:%(lineno)d %(threadName)s %(process)s %(message)s").format(record)


def test_a_reader_that_went_away_does_no_harm(own_logging: None, monkeypatch: Any) -> None:
    logs.configure("text", "INFO")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    LOG.warning("nobody hears it")


def test_levels_change_while_the_node_runs(own_logging: None, capsys: Any) -> None:
    logs.configure("text", "WARN")

    def change(name: str, operation: int, value: str | None) -> None:
        entry = {"name": name, "config_operation": operation, "value": value}
        alter_log_levels(1, {"resource_name": "1", "configs": [entry]}, validate_only=False)

    LOG.info("too quiet")
    change("ottla.test", 0, "DEBUG")
    LOG.debug("heard")
    change("ottla.test", 1, None)
    LOG.info("quiet again")
    change("root", 0, "INFO")
    LOG.info("all hear")
    assert [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["heard", "all hear"]


def events(caplog: Any, logger: str) -> list[tuple[str, dict[str, Any]]]:
    return [(each.getMessage(), getattr(each, "ottla_fields", {})) for each in caplog.records if each.name == logger]


def test_what_a_node_logs_of_its_life(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with running(str(tmp_path), {"group.initial.rebalance.delay.ms": "0"}) as node:
            client = await Client.connect(node)
            await client.create("t", {"retention.ms": "1"}, partitions=2)
            more = [{"name": "t", "count": 3, "assignments": None}]
            await client.ask(ApiKey.CREATE_PARTITIONS, 2, {"topics": more, "timeout": 1000, "validate_only": False})
            await commit(client, "g", "t", 0)
            member = (await join(client, "g"))["member_id"]
            await join(client, "g", member)
            leaving = {"group_id": "g", "members": [{"member_id": member, "group_instance_id": None}]}
            await client.ask(ApiKey.LEAVE_GROUP, 3, leaving)
            await client.ask(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["t"], "timeout": 1000})
            client.close()

    run(test())
    life = events(caplog, "ottla.node")
    assert [event for event, _ in life] == ["node started", "node stopping", "node stopped"]
    assert {"node_id", "cluster_id", "listeners", "start_ms", "logs_ms"} <= life[0][1].keys()
    changes = [(event, found.get("topic")) for event, found in events(caplog, "ottla.controller")]
    assert changes[0] == ("topic created", "t") and ("partitions added", "t") in changes
    assert ("topic created", "__consumer_offsets") in changes and changes[-1] == ("topic deleted", "t")
    configured = [found for event, found in events(caplog, "ottla.controller") if event == "configuration changed"]
    assert configured[0] == {"resource": "topic", "name": "t", "settings": "retention.ms"}
    groups = events(caplog, "ottla.groups")
    assert [event for event, _ in groups] == [
        "group rebalancing",
        "group rebalanced",
        "group rebalancing",
        "group is empty",
    ]
    assert groups[1][1]["generation"] == groups[1][1]["members"] == 1
    assert groups[2][1]["reason"] == "members left"
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_members_that_join_together_are_one_line_more(caplog: Any) -> None:
    """A large group of KIP-848 has a new epoch with each member that joins."""
    caplog.set_level(logging.INFO)
    group = ConsumerGroup("g")

    async def test() -> list[int]:
        log, seen = EpochLog(), []
        for number in range(2, 100):
            group.set_epoch(number, 0)
            log.add("rebalances", group, f"epoch {number}")
            seen.append(len(events(caplog, "ottla.groups")))
        log.add("assigned", group, "for epoch 99")
        log.flush()
        log.flush()
        log.add("rebalances", group, "epoch 100")
        log.flush()
        return seen

    assert run(test()) == [1] * 98, "the first is logged at once"
    found = [(event, each["reason"], each.get("times")) for event, each in events(caplog, "ottla.groups")]
    assert found == [
        ("group rebalances", "epoch 2", None),
        ("group assigned", "for epoch 99", None),
        ("group rebalances", "epoch 99", 97),
        ("group rebalances", "epoch 100", None),
    ]


def test_slow_requests_and_what_is_no_request(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with running(str(tmp_path), {"ottla.log.slow.request.ms": "0"}) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.fetch("t", 0)
            await client.produce("t", batch(10))
            client.writer.write(b"\x7f\xff\xff\xff")
            await client.reader.read()

    run(test())
    slow = [found for event, found in events(caplog, "ottla.requests") if event == "slow request"]
    assert [found["api"] for found in slow] == ["CREATE_TOPICS", "PRODUCE"]
    assert slow[0]["client"] == "127.0.0.1" and slow[0]["client_id"] == "test" and slow[0]["ms"] >= 0
    ((_, who),) = events(caplog, "ottla.network")
    assert "socket.request.max.bytes" in who["error"] and who["client"] == "127.0.0.1"
