"""What is asked of both brokers about streams groups: see differential_cases.py and test_streams_like_kafka.py, which
asks a Kafka 4.4 that keeps descriptions of topologies."""

from __future__ import annotations

import time
from typing import Any, Final

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential_cases import Requests, World, cases
from tests.conformance.operations.operations import eventually

GROUP: Final = 32
"""The type of a group in DescribeConfigs and its like."""
HEARTBEAT_MS: Final = 6000
SETTINGS_WITHIN_S: Final = 30
ENDPOINT: Final = {"host": "h", "port": 1}
OFFSET: Final = {"subtopology_id": "0", "partition": 0, "offset": 7}
TAGS: Final = [{"key": "k", "value": "v"}]
SAME: Final = {"topology": None, "active_tasks": None, "standby_tasks": None, "warmup_tasks": None, "process_id": None,
               "client_tags": None, "rebalance_timeout": -1}  # fmt: skip
"""A heartbeat of a member that has nothing new to say."""


def subtopology(name: str, *sources: str, **more: Any) -> dict[str, Any]:
    return {
        "subtopology_id": name,
        "source_topics": sources,
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **more,
    }


def topology(*subtopologies: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": subtopologies}


def info(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": []}


def asked(group: str, member_id: str = "m", member_epoch: int = 0, **more: Any) -> dict[str, Any]:
    """A member that joins, unless told."""
    joining = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": member_epoch,
        "endpoint_information_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"p-{member_id}",
        "user_endpoint": None,
        "client_tags": [],
        "task_offsets": None,
        "task_end_offsets": None,
        "shutdown_application": False,
    }
    return {**joining, **(SAME if member_epoch else {}), **more}


def tasks(*numbers: int, name: str = "0") -> list[dict[str, Any]]:
    return [{"subtopology_id": name, "partitions": numbers}]


def at_once(w: World, *groups: str) -> None:
    """Have the first assignment of these groups wait for nobody, and heartbeats be asked for in 6 s. Brokers put that
    into force one group after another: when it holds of the last one, it does of all."""
    probe = f"{groups[0]}-probe"
    settings = {
        "streams.initial.rebalance.delay.ms": "0",
        "streams.assignment.interval.ms": "0",
        "streams.heartbeat.interval.ms": str(HEARTBEAT_MS),
    }
    for side in w.sides:
        for group in (*groups, probe):
            configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
            row = {"resource_type": GROUP, "resource_name": group, "configs": configs}
            side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row], "validate_only": False})
        deadline = time.monotonic() + SETTINGS_WITHIN_S
        while True:
            answer = side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked(probe, topology=topology(subtopology("0", w.t))))
            side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked(probe, member_epoch=-1))
            if answer["heartbeat_interval"] == HEARTBEAT_MS:
                break
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)


@cases(ApiKey.STREAMS_GROUP_HEARTBEAT)
def streams_group_heartbeat(w: World, version: int) -> Requests:
    """Invalid requests, then the lives of members; no member waits for another."""
    group = f"{w.prefix}1071-{version}"
    unready, old, static = (f"{group}-{each}" for each in ("unready", "old", "static"))
    reads = topology(subtopology("0", w.t))
    for wrong in (
        {"instance_id": ""},
        {"warmup_tasks": tasks(0)},
        {"task_offsets": [OFFSET, OFFSET]},
        {"member_epoch": 5, "instance_id": "i", "topology": None},
        {"member_epoch": -2, "instance_id": "i"},
        {"member_id": ""},
        {"member_id": " "},
        {"group_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout": -1},
        {"active_tasks": None},
        {"active_tasks": tasks(0)},
        {"standby_tasks": None},
        {"warmup_tasks": None},
        {"topology": None},
        {"member_epoch": 1},
        {"member_epoch": -1},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"member_epoch": 1, "topology": None},
        {"member_epoch": 1, "topology": None, "active_tasks": None},
        {"topology": topology(subtopology("0", w.t, source_topic_regex=["a.*"]))},
        {"topology": topology(subtopology("0", w.t, state_changelog_topics=[info("c", 3)]))},
        {"topology": topology(subtopology("0", "__consumer_offsets", "__transaction_state"))},
        {"topology": topology(subtopology("0", "a b", repartition_sink_topics=["."]))},
        {"topology": topology(subtopology("0", w.t), subtopology("0", w.t))},
        {
            "topology": topology(
                subtopology(
                    "0",
                    w.t,
                    copartition_groups=[
                        {"source_topics": [0, 7], "source_topic_regex": [], "repartition_source_topics": []}
                    ],
                )
            )
        },
        {"topology": topology(subtopology("0", w.t), subtopology("1", repartition_source_topics=[info("r")]))},
        {"topology": topology(subtopology("0"))},
        {"topology": topology(subtopology("0", w.t, repartition_source_topics=[info(f"{w.prefix}r", -5)]))},
        {"topology": topology(subtopology("0", w.t), epoch=-1)},
        {"client_tags": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]},
    ):
        yield {**asked(f"{group}-wrong", topology=reads), **wrong}
    at_once(w, group, unready, old, static)
    yield asked(group, topology=reads)
    yield asked(group, member_epoch=2)
    yield asked(group, member_epoch=2, active_tasks=tasks(0, 1, 2), standby_tasks=[], warmup_tasks=[])
    for wrong in (
        {"active_tasks": tasks(0, name="1")},
        {"active_tasks": tasks(77)},
        {"standby_tasks": tasks(-1)},
    ):
        nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        yield asked(group, member_epoch=2, **{**nothing, **wrong})
    for epoch in (1, 7):
        yield asked(group, member_epoch=epoch)
    yield asked(group, "n", topology=reads, user_endpoint=ENDPOINT, client_tags=TAGS)
    yield asked(group, member_epoch=2)
    yield asked(group, member_epoch=2, active_tasks=tasks(0), standby_tasks=[], warmup_tasks=[])
    yield asked(group, "n", 3, endpoint_information_epoch=7)
    yield asked(group, "n", 3, shutdown_application=True)
    yield asked(group, "x", 3)
    yield asked(group, "x", topology=topology(subtopology("0", w.nowhere)))
    yield asked(group, "n", -1)
    yield asked(group, member_epoch=3, shutdown_application=True)
    yield asked(group, member_epoch=-1)
    yield asked(group, member_epoch=-1)
    yield asked(unready, topology=topology(subtopology("0", w.nowhere)))
    yield asked(unready, member_epoch=2)
    yield asked(unready, "e", topology=topology(subtopology("0", w.nowhere)), user_endpoint=ENDPOINT)
    yield asked(static, topology=reads, instance_id="i", task_offsets=[OFFSET])
    yield asked(static, "n", topology=reads, instance_id="i")
    yield asked(static, member_epoch=2, instance_id="i", task_offsets=[OFFSET], task_end_offsets=[])
    yield asked(static, member_epoch=2)
    yield asked(static, "n", 2, instance_id="i")
    yield asked(static, member_epoch=-2, instance_id="i")
    yield asked(static, "n", topology=reads, instance_id="i", process_id="p-m", user_endpoint=ENDPOINT)
    yield asked(static, member_epoch=-1, instance_id="i")
    yield asked(static, "n", -1, instance_id="i")
    yield asked(old, topology=topology(subtopology("0", w.t), epoch=3))
    yield asked(old, "o", topology=topology(subtopology("0", w.t), epoch=2))
    yield asked(old, "o", topology=topology(subtopology("0", w.t), epoch=4))
    for side in w.sides:
        side.ask(
            ApiKey.JOIN_GROUP,
            4,
            {
                "group_id": f"{group}-classic",
                "session_timeout": 10_000,
                "rebalance_timeout": 1000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        )
    yield asked(f"{group}-classic", member_epoch=1)


@cases(ApiKey.STREAMS_GROUP_DESCRIBE)
def streams_group_describe(w: World, version: int) -> Requests:
    group = f"{w.prefix}1071-{version}-described"
    yield {"group_ids": [], "include_authorized_operations": True}
    yield {"group_ids": ["", f"{w.prefix}nobody", f"{w.prefix}c9"], "include_authorized_operations": False}
    at_once(w, group, f"{group}-ready")
    keeps = subtopology(
        "1",
        w.t,
        state_changelog_topics=[{**info(f"{w.prefix}c"), "topic_configs": [{"key": "k", "value": "v"}]}],
        repartition_sink_topics=[f"{w.prefix}r"],
    )
    member = asked(
        group,
        topology=topology(keeps, subtopology("0", w.nowhere)),
        rack_id="r",
        user_endpoint=None,
        client_tags=TAGS,
    )
    for side in w.sides:
        side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, member)
    for wanted in (False, True):
        yield {"group_ids": [group], "include_authorized_operations": wanted, **of_topology(version)}
    ready = asked(f"{group}-ready", topology=topology(subtopology("0", w.t)))
    for side in w.sides:
        eventually(lambda side=side: side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, ready)["active_tasks"])
    for told in (False, True):
        if told:
            for side in w.sides:
                pushed = {
                    "group_id": f"{group}-ready",
                    "member_id": "m",
                    "topology_epoch": 0,
                    "topology_description": described(w),
                }
                assert side.ask(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0, pushed)["error_code"] == 0
        yield {"group_ids": [f"{group}-ready"], "include_authorized_operations": False, **of_topology(version)}
    yield {"group_ids": [f"{group}-ready"], "include_authorized_operations": False}


def of_topology(version: int) -> dict[str, Any]:
    return {"include_topology_description": True} if version else {}


def node(name: str, node_type: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "node_type": node_type,
        "source_topics": [],
        "sink_topic": None,
        "stores": [],
        "successors": [],
        **more,
    }


def described(w: World) -> dict[str, Any]:
    """Names only where nodes of a type have them, and one of each: Kafka keeps them in sets."""
    nodes = [
        node("source", 1, source_topics=[w.t], successors=["count"]),
        node("count", 2, stores=["counts"], successors=["sink"]),
        node("sink", 3, sink_topic=w.empty),
        node("sink by record", 3),
    ]
    store = {"source": node("g", 1, source_topics=[w.t], successors=["gp"]), "processor": node("gp", 2, stores=["gs"])}
    return {"subtopologies": [{"subtopology_id": "0", "nodes": nodes}], "global_stores": [store]}


@cases(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
def streams_group_topology_description_update(w: World, version: int) -> Requests:
    group = f"{w.prefix}1331"
    member = asked(group, topology=topology(subtopology("0", w.t)))
    good = described(w)
    pushed = {"group_id": group, "member_id": "m", "topology_epoch": 0, "topology_description": good}
    yield pushed
    for side in w.sides:
        assert side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, member)["error_code"] == 0
    source, processor = node("s", 1), node("p", 2)
    for wrong in (
        {"group_id": ""},
        {"group_id": " "},
        {"member_id": ""},
        {"member_id": "x"},
        {"topology_epoch": 1},
        {"group_id": f"{w.prefix}c9"},
        *(
            {
                "topology_description": {
                    "subtopologies": [{"subtopology_id": "0", "nodes": [node("n", kind)]}],
                    "global_stores": [],
                }
            }
            for kind in (0, 4, -1)
        ),
        *(
            {"topology_description": {"subtopologies": [], "global_stores": [{"source": one, "processor": other}]}}
            for one, other in ((source, source), (processor, processor), (source, node("n", 9)))
        ),
    ):
        yield {**pushed, **wrong}
    yield pushed
    yield pushed
    yield {**pushed, "topology_description": {"subtopologies": [], "global_stores": []}}
