"""A cluster in memory that looks like somebody's: what browsers are shown, and what the picture in the docs is of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.console.brokers import NodeAway
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.fake_cluster import ID, NOW_MS, FakeBrokers

TOPICS: Final = {
    "carts": (6, 1_204_118), "clicks": (24, 98_120_441), "orders": (12, 4_310_027), "orders.dead-letters": (1, 17),
    "payments": (12, 4_309_511), "shipments": (6, 3_998_200), "stock": (3, 51_702), "users": (3, 120_045),
}  # fmt: skip
"""Partitions, and records in all of them."""
GROUPS: Final = {
    "billing": ("consumer", "Stable", "payments", 0), "fraud-scores": ("streams", "Stable", "payments", 1_840),
    "mailer": ("classic", "Stable", "orders", 12), "search-index": ("classic", "Empty", "clicks", 2_911_004),
    "warehouse": ("share", "Stable", "shipments", 230),
}  # fmt: skip
"""Kind, state, topic and lag."""
RECORDS: Final = [
    SimpleRecord(
        NOW_MS + number * 1_700,
        f"customer-{number % 7}".encode(),
        json.dumps({"order": 1000 + number, "items": [{"sku": f"A-{number}", "count": 1 + number % 3}],
                    "total": 12.5 * (number + 1), "paid": number % 2 == 0}).encode(),
        (("trace-id", b"4bf92f3577b34da6"), ("source", b"web")),
    )
    for number in range(60)
]  # fmt: skip


class DemoBrokers(FakeBrokers):
    """Three brokers in three racks."""

    written = 0
    """Records that are written to partition 0 of carts while a test looks."""
    silent = 0
    """A node that does not say where its partitions end."""

    def __init__(self) -> None:
        super().__init__(TOPICS, [(name, kind) for name, (kind, *_) in GROUPS.items()], "", RECORDS)

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        brokers = [
            {"node_id": number, "host": f"kafka-{number}.example.org", "port": 9092, "rack": f"eu-{letter}"}
            for number, letter in ((1, "a"), (2, "b"), (3, "c"))
        ]
        topics = [
            {
                "error_code": 0,
                "name": name,
                "topic_id": ID,
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": number,
                        "leader_id": 1 + number % 3,
                        "leader_epoch": 4,
                        "replica_nodes": [1, 2, 3],
                        "isr_nodes": [1, 2] if (name, number) == ("stock", 2) else [1, 2, 3],
                        "offline_replicas": [],
                    }
                    for number in range(count)
                ],
            }
            for name, (count, _) in TOPICS.items()
        ]
        return {"brokers": brokers, "cluster_id": "5L6g3nShT-eMCtK--X86sw", "controller_id": 2, "topics": topics}

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        if node_id == self.silent and key is ApiKey.LIST_OFFSETS:
            raise NodeAway(node_id, "it hangs")
        return super().ask(node_id, key, values)

    def list_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        def end(name: str, number: int) -> int:
            partitions, records = TOPICS.get(name, (1, 0))
            if (name, number) == ("carts", 0):
                return 30 + self.written
            return len(RECORDS) if (name, number) == ("orders", 0) else records // partitions

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": each["partition_index"],
                        "error_code": 0,
                        "timestamp": -1,
                        "offset": 0 if each["timestamp"] == -2 else end(topic["name"], each["partition_index"]),
                    }
                    for each in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
        return {"topics": topics}

    def list_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if self.asked.count(self.asked[-1]) % 3 != 1:  # one of three brokers has them
            return {"error_code": 0, "groups": []}
        rows = [
            {"group_id": name, "protocol_type": "consumer", "group_state": state, "group_type": kind}
            for name, (kind, state, *_) in GROUPS.items()
        ]
        return {"error_code": 0, "groups": rows}

    def offset_fetch(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"groups": [self._offsets(each["group_id"]) for each in values["groups"]]}

    def _offsets(self, name: str) -> dict[str, Any]:
        _, _, topic, lag = GROUPS[name]
        partitions, records = TOPICS[topic]
        rows = [
            {
                "partition_index": number,
                "error_code": 0,
                "committed_offset": records // partitions - (lag if number == 1 else 0),
            }
            for number in range(1, partitions)
        ]
        return {"group_id": name, "error_code": 0, "topics": [{"name": topic, "partitions": rows}]}

    def describe_share_group_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [{"partition_index": 0, "start_offset": 666_136, "lag": 230, "error_code": 0}]
        return {
            "groups": [
                {
                    "group_id": each["group_id"],
                    "error_code": 0,
                    "topics": [{"topic_name": "shipments", "partitions": rows}],
                }
                for each in values["groups"]
            ]
        }

    def _described(self, names: Any, more: Mapping[str, Any], of_member: Mapping[str, Any]) -> dict[str, Any]:
        found = super()._described(names, more, of_member)
        for row in found["groups"]:
            row["group_state"] = GROUPS[row["group_id"]][1]
            row["members"] = [] if row["group_state"] == "Empty" else row["members"]
        return found
