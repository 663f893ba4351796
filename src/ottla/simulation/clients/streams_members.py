"""Simulated members of a streams application (KIP-1071): they ask the coordinator which tasks are theirs, restore the
state of those that they warm up, report how far they are, and commit for those that they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History
from ottla.simulation.clients.consumer_members import LEAVING, REBALANCE_MS, WORK, ConsumerGroup, ConsumerMember
from ottla.simulation.world import World

SUBTOPOLOGY: Final = "0"
CHANGELOG: Final = "app-store-changelog"
"""An internal topic, which the coordinator has created."""

END: Final = 1_000_000
"""Records of the changelog of a task. Far more than a copy may be behind to be active."""
RESTORED_AT_ONCE: Final = 200_000


def topology(epoch: int = 0, source: str = WORK) -> dict[str, Any]:
    """One stateful subtopology."""
    changelog = {"name": CHANGELOG, "partitions": 0, "replication_factor": 0, "topic_configs": []}
    return {
        "epoch": epoch,
        "subtopologies": [
            {
                "subtopology_id": SUBTOPOLOGY,
                "source_topics": [source],
                "source_topic_regex": [],
                "state_changelog_topics": [changelog],
                "repartition_sink_topics": [],
                "repartition_source_topics": [],
                "copartition_groups": [],
            }
        ],
    }


class StreamsMember(ConsumerMember):
    heartbeat = ApiKey.STREAMS_GROUP_HEARTBEAT
    owned_as = "active_tasks"

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], group: ConsumerGroup) -> None:
        self.restored: dict[int, int] = {}
        """How far the state on its disk is, by task. It outlives a membership."""
        self.copies: tuple[list[int], list[int]] = [], []
        """Its standby and warm-up tasks."""
        self.restores = True
        super().__init__(world, history, name, servers, group)

    def start(self) -> None:
        self.process_id = str(UUID(int=self.random.getrandbits(128)))
        super().start()

    def asked_to_join(self) -> dict[str, Any]:
        """A heartbeat with which it becomes a member."""
        return {
            "group_id": self.group.name,
            "member_id": self.member_id,
            "member_epoch": 0,
            "endpoint_information_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_MS,
            "topology": topology(),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.process_id,
            "user_endpoint": None,
            "client_tags": [],
            "task_offsets": self._offsets(),
            "task_end_offsets": self._ends(),
            "shutdown_application": False,
        }

    def _asked(self, *, whole: bool) -> dict[str, Any]:
        if self.epoch == 0:
            return self.asked_to_join()
        owned: list[Any] = [None, None, None]
        if whole or not self.owned_is_known:
            owned = [_tasks(numbers) for numbers in (sorted(self.owned), *self.copies)]
        return self.asked_to_join() | {
            "member_epoch": self.epoch,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": owned[0],
            "standby_tasks": owned[1],
            "warmup_tasks": owned[2],
            "process_id": None,
            "client_tags": None,
        }

    def _asked_to_leave(self, member_id: str) -> dict[str, Any]:
        return self.asked_to_join() | {
            "member_id": member_id,
            "member_epoch": LEAVING,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
        }

    def _offsets(self) -> list[dict[str, Any]]:
        """Offsets of the tasks on its disk that do not run."""
        numbers = sorted({*self.restored, *self.copies[0], *self.copies[1]} - self.owned)
        return [_offset(number, self.restored.get(number, 0)) for number in numbers]

    def _ends(self) -> list[dict[str, Any]]:
        return [_offset(each["partition"], END) for each in self._offsets()]

    def _given(self, answer: dict[str, Any]) -> set[int] | None:
        self._restore()
        active, standby, warmup = (answer[f"{each}_tasks"] for each in ("active", "standby", "warmup"))
        if active is None:
            return None
        copies = _numbers(standby), _numbers(warmup)
        if copies != self.copies:
            self.note(f"warms up {copies[1]}")
            self.owned_is_known = False
        self.copies = copies
        self.world.counts["warm-ups"] += len(copies[1])
        return {*_numbers(active)}

    def _restore(self) -> None:
        for number in self.owned:
            self.restored[number] = END
        if self.restores:
            for number in (*self.copies[0], *self.copies[1]):
                so_far = self.restored.get(number, 0)
                self.restored[number] = min(END, so_far + self.random.randint(1, RESTORED_AT_ONCE))

    def _take(self, given: set[int], process: tuple[str, int], sent_s: float) -> None:
        is_known = self.owned_is_known
        super()._take(given, process, sent_s)
        self.owned_is_known = self.owned_is_known and is_known

    def _join_again(self) -> None:
        super()._join_again()
        self.copies = [], []


def _tasks(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [{"subtopology_id": SUBTOPOLOGY, "partitions": [*numbers]}] if numbers else []


def _numbers(tasks: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(number for each in tasks for number in each["partitions"])


def _offset(number: int, offset: int) -> dict[str, Any]:
    return {"subtopology_id": SUBTOPOLOGY, "partition": number, "offset": offset}
