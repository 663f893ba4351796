"""Rebalances whose instructions are counted: members in lockstep, so that each costs the same.

A burst is two rebalances of a whole group, from one settled state to the next: a member joins, another leaves. In each
round the members that have something to say send it while the node is paused, and all answers are awaited. Between two
rebalances each member sends one heartbeat, as members in use have sent many.

A burst of `FirstJoins` is the first rebalance of many small groups at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from bench.method.counted import CountedOttla
from bench.method.load import Client, frame
from bench.method.members import ASSIGNMENT, METADATA, SESSION_MS
from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

TIMEOUT_MS = 300_000
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, LEAVE_VERSION, CONSUMER_VERSION = 9, 5, 4, 5, 1
ROUNDS_MAX = 20
"""A rebalance that takes more does not end."""

Request = tuple[ApiKey, int, dict[str, Any]]
Partitions = set[tuple[UUID, int]]


class _Members:
    """Members of one group, each with a connection."""

    def __init__(self, node: CountedOttla, group_id: str, members: int) -> None:
        self.node = node
        self.group_id = group_id
        self.units = 2 * members
        """Number of members that each burst rebalances, two rebalances together."""
        self._made = 0

    def exchange(self, asked: Sequence[tuple[Client, Request]]) -> list[Any]:
        """Send one request on each connection at the same moment; returns the answers in this order."""
        frames = [messages.encode_request(api, version, 1, "bench", values) for _, (api, version, values) in asked]
        with self.node.paused():
            for (client, _), body in zip(asked, frames, strict=True):
                client.socket.sendall(frame(body))
        return [
            messages.decode_response(api, version, client.receive_frame())[1] for client, (api, version, _) in asked
        ]

    def new_name(self) -> str:
        self._made += 1
        return f"member-{self._made:06}"


def _joining(group_id: str, member_id: str) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": TIMEOUT_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "reason": None,
        "protocols": [{"name": "range", "metadata": METADATA}],
    }


class _Classic:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.member_id = ""
        self.generation = -1


class ClassicRebalances(_Members):
    """Rebalances of a classic group."""

    def __init__(self, node: CountedOttla, members: int) -> None:
        super().__init__(node, f"classic-{members}", members)
        self.members: list[_Classic] = []
        self._join([self._new()])
        self._join([self._new() for _ in range(members - 1)])

    def burst(self) -> None:
        self._join([self._new()])
        leaving = self.members.pop(0)
        who = {"member_id": leaving.member_id, "group_instance_id": None, "reason": None}
        self._ask([leaving], ApiKey.LEAVE_GROUP, LEAVE_VERSION, [{"group_id": self.group_id, "members": [who]}])
        leaving.client.close()
        self._join([])

    def close(self) -> None:
        for member in self.members:
            member.client.close()

    def _new(self) -> _Classic:
        return _Classic(Client(self.node.port))

    def _ask(
        self, members: Sequence[_Classic], api: ApiKey, version: int, values: Iterable[dict[str, Any]]
    ) -> list[Any]:
        return self.exchange(
            [(member.client, (api, version, each)) for member, each in zip(members, values, strict=True)]
        )

    def _beat(self, members: Sequence[_Classic], due: ErrorCode) -> None:
        values = [self._who(member) for member in members]
        for answer in self._ask(members, ApiKey.HEARTBEAT, BEAT_VERSION, values):
            _require(answer, due)

    def _who(self, member: _Classic) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": None,
        }

    def _join(self, added: list[_Classic]) -> None:
        """A rebalance: those added begin it, if there are any, or else one that has left has begun it."""
        for member, answer in zip(added, self._asked_to_join(added), strict=True):
            _require(answer, ErrorCode.member_id_required)
            member.member_id = answer.member_id
        old = list(self.members)
        self.members += added
        if old and added:  # newcomers wait for the others, who are told
            for member in added:
                values = _joining(self.group_id, member.member_id)
                body = messages.encode_request(ApiKey.JOIN_GROUP, JOIN_VERSION, 1, "bench", values)
                member.client.socket.sendall(frame(body))
            self._wait_until_preparing(old[0])
            self._beat(old[1:], ErrorCode.rebalance_in_progress)
            joined = [*self._asked_to_join(old), *[self._answer(member) for member in added]]
        else:
            self._beat(old, ErrorCode.rebalance_in_progress)
            joined = self._asked_to_join(self.members)
        assignments: list[dict[str, Any]] = []
        for member, answer in zip(self.members, joined, strict=True):
            _require(answer, ErrorCode.none)
            member.generation = answer.generation_id
            if answer.members:
                assignments = [{"member_id": each.member_id, "assignment": ASSIGNMENT} for each in answer.members]
                leader = member
        values = [
            {
                **self._who(member),
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments if member is leader else [],
            }
            for member in self.members
        ]
        for answer in self._ask(self.members, ApiKey.SYNC_GROUP, SYNC_VERSION, values):
            _require(answer, ErrorCode.none)
        self._beat(self.members, ErrorCode.none)

    def _asked_to_join(self, members: Sequence[_Classic]) -> list[Any]:
        values = [_joining(self.group_id, member.member_id) for member in members]
        return self._ask(members, ApiKey.JOIN_GROUP, JOIN_VERSION, values)

    def _answer(self, member: _Classic) -> Any:
        return messages.decode_response(ApiKey.JOIN_GROUP, JOIN_VERSION, member.client.receive_frame())[1]

    def _wait_until_preparing(self, member: _Classic) -> None:
        """The JoinGroup of the newcomer was sent before, on another connection: the first heartbeat mostly suffices."""
        for _ in range(ROUNDS_MAX):
            (answer,) = self._ask([member], ApiKey.HEARTBEAT, BEAT_VERSION, [self._who(member)])
            if answer.error_code:
                return _require(answer, ErrorCode.rebalance_in_progress)
        raise RuntimeError("no rebalance begins")


class StaticReturns(_Members):
    """Static members of one group that restart, one after the other: each has another connection and no member id, and
    gets its assignment of before. The group does not rebalance."""

    RETURNS = 5
    """Members that restart in a burst."""

    def __init__(self, node: CountedOttla, members: int) -> None:
        super().__init__(node, f"static-{members}", members)
        self.units = self.RETURNS
        self._clients = [Client(node.port) for _ in range(members)]
        self._next = 1  # the first leads: it would get the members
        self._generation = 0
        joining = (ApiKey.JOIN_GROUP, JOIN_VERSION)
        joined = self.exchange([(each, (*joining, self._joining(at))) for at, each in enumerate(self._clients)])
        assigning = []
        for at, (client, answer) in enumerate(zip(self._clients, joined, strict=True)):
            _require(answer, ErrorCode.none)
            _require_generation(answer.generation_id)
            self._generation = answer.generation_id
            assignments = [{"member_id": each.member_id, "assignment": ASSIGNMENT} for each in answer.members]
            assigning.append((client, self._assigning(at, answer.member_id, assignments)))
        for answer in self.exchange(assigning):
            _require(answer, ErrorCode.none)

    def burst(self) -> None:
        for _ in range(self.RETURNS):
            at, self._next = self._next, max(1, (self._next + 1) % len(self._clients))
            self._clients[at].close()
            client = self._clients[at] = Client(self.node.port)
            (joined,) = self.exchange([(client, (ApiKey.JOIN_GROUP, JOIN_VERSION, self._joining(at)))])
            _require(joined, ErrorCode.none)
            _require_generation(joined.generation_id)
            (answer,) = self.exchange([(client, self._assigning(at, joined.member_id, []))])
            _require(answer, ErrorCode.none)
            if answer.assignment != ASSIGNMENT:
                raise RuntimeError("a static member lost its assignment")

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _joining(self, at: int) -> dict[str, Any]:
        return {**_joining(self.group_id, ""), "group_instance_id": f"instance-{at:06}"}

    def _assigning(self, at: int, member_id: str, assignments: list[dict[str, Any]]) -> Request:
        return (
            ApiKey.SYNC_GROUP,
            SYNC_VERSION,
            {
                "group_id": self.group_id,
                "generation_id": self._generation,
                "member_id": member_id,
                "group_instance_id": f"instance-{at:06}",
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
        )


class FirstJoins(_Members):
    """First rebalances of small groups, which are new in each burst; their members keep their connections. Each member
    learns its id, joins, gets its assignment and sends a heartbeat."""

    def __init__(self, node: CountedOttla, groups: int, members: int) -> None:
        super().__init__(node, "", groups * members)
        self.units = groups * members
        self._clients = [[Client(node.port) for _ in range(members)] for _ in range(groups)]

    def burst(self) -> None:
        groups = [(self.new_name(), clients) for clients in self._clients]
        self._steps([_FirstJoin(group_id, client) for group_id, clients in groups for client in clients])

    def _steps(self, members: list[_FirstJoin]) -> None:
        joining = (ApiKey.JOIN_GROUP, JOIN_VERSION)
        for member, answer in self._all(members, *joining, [_joining(each.group_id, "") for each in members]):
            _require(answer, ErrorCode.member_id_required)
            member.member_id = answer.member_id
        assigning = []
        asked = [_joining(each.group_id, each.member_id) for each in members]
        for member, answer in self._all(members, *joining, asked):
            _require(answer, ErrorCode.none)
            _require_generation(answer.generation_id)
            assignments = [{"member_id": each.member_id, "assignment": ASSIGNMENT} for each in answer.members]
            assigning.append(
                {
                    **member.who(),
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                    "assignments": assignments,
                }
            )
        for _, answer in self._all(members, ApiKey.SYNC_GROUP, SYNC_VERSION, assigning):
            _require(answer, ErrorCode.none)
        for _, answer in self._all(members, ApiKey.HEARTBEAT, BEAT_VERSION, [each.who() for each in members]):
            _require(answer, ErrorCode.none)

    def close(self) -> None:
        for clients in self._clients:
            for client in clients:
                client.close()

    def _all(
        self, members: Sequence[_FirstJoin], api: ApiKey, version: int, values: Sequence[dict[str, Any]]
    ) -> list[tuple[_FirstJoin, Any]]:
        asked = [(member.client, (api, version, each)) for member, each in zip(members, values, strict=True)]
        return [*zip(members, self.exchange(asked), strict=True)]


class _FirstJoin:
    def __init__(self, group_id: str, client: Client) -> None:
        self.group_id = group_id
        self.client = client
        self.member_id = ""

    def who(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": 1,
            "member_id": self.member_id,
            "group_instance_id": None,
        }


def _require_generation(generation: int) -> None:
    if generation != 1:
        raise RuntimeError(f"generation {generation} where the members of a new group were to join together")


class _Consumer:
    def __init__(self, client: Client, member_id: str) -> None:
        self.client = client
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = set()
        self.says_owned = False
        """Whether it has to say which partitions are left to it."""


class ConsumerRebalances(_Members):
    """Rebalances of a group of KIP-848."""

    def __init__(self, node: CountedOttla, members: int, topic: str, partitions: int) -> None:
        super().__init__(node, f"consumer-{members}", members)
        self.topic = topic
        self.partitions = partitions
        self.members: list[_Consumer] = []
        self.epoch = 0
        for _ in range(members):
            self._add()
        self._settle()

    def burst(self) -> None:
        self._add()
        self._settle()
        leaving = self.members.pop(0)
        self._ask([leaving], epoch=-1)
        leaving.client.close()
        self.epoch += 1
        self._settle()

    def close(self) -> None:
        for member in self.members:
            member.client.close()

    def _add(self) -> None:
        member = _Consumer(Client(self.node.port), self.new_name())
        self.members.append(member)
        self._ask([member])

    def _settle(self) -> None:
        """All learn of the new epoch; then those speak that have to revoke partitions or lack some."""
        self._ask(self.members)
        for _ in range(ROUNDS_MAX):
            least = self.partitions // len(self.members)
            asking = [
                each for each in self.members if each.epoch < self.epoch or each.says_owned or len(each.owned) < least
            ]
            if not asking and sum(len(each.owned) for each in self.members) == self.partitions:
                break
            self._ask(asking or self.members)
        else:
            raise RuntimeError("a group did not settle")
        self._ask(self.members)

    def _ask(self, members: Sequence[_Consumer], epoch: int | None = None) -> None:
        asked = [
            (each.client, (ApiKey.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, self._values(each, epoch)))
            for each in members
        ]
        for member, answer in zip(members, self.exchange(asked), strict=True):
            _require(answer, ErrorCode.none)
            if answer.member_epoch < 0:
                continue
            member.epoch = answer.member_epoch
            self.epoch = max(self.epoch, member.epoch)
            member.says_owned = False
            if answer.assignment is not None:
                assigned = {
                    (each.topic_id, number) for each in answer.assignment.topic_partitions for number in each.partitions
                }
                member.says_owned = not member.owned <= assigned
                member.owned = assigned

    def _values(self, member: _Consumer, epoch: int | None) -> dict[str, Any]:
        is_new = member.epoch == 0
        owned = None
        if member.says_owned or is_new:
            by_topic: dict[UUID, list[int]] = {}
            for topic_id, number in sorted(member.owned):
                by_topic.setdefault(topic_id, []).append(number)
            owned = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in by_topic.items()]
        return {
            "group_id": self.group_id,
            "member_id": member.member_id,
            "member_epoch": member.epoch if epoch is None else epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": TIMEOUT_MS if is_new else -1,
            "subscribed_topic_names": [self.topic] if is_new else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": owned,
        }


def _require(answer: Any, due: ErrorCode) -> None:
    if answer.error_code != due:
        raise RuntimeError(f"{answer.error_code!r} where {due!r} was due")
