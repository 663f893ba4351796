"""Members of groups of KIP-848 in the raw protocol, thousands of them in one epoll loop, for timing rebalances.

They speak ConsumerGroupHeartbeat 1, each on its own connection, and take part in rebalances as any client does: who is
to give partitions up says so at once in a heartbeat, who lacks some asks when others have given theirs up. They do
not wait for a heartbeat interval in order to notice a rebalance: while a group has not settled, one member after the
other asks, and when one learns of a new epoch, each of those behind it asks once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable

from ottla.protocol.messages import ApiKey

HEARTBEAT_VERSION = 1
TICK_S = 0.002
"""How often a member of a group that has not settled asks, where nothing else says that it should."""
DEADLINE_S = 120.0
LEAVING, LEAVING_STATIC = -1, -2
_RETRY = {14, 15, 16}  # loading, not available, not coordinator
_NULL, _NO_TAGS = b"\0", b"\0"
_HEAD = struct.pack(">hhi", ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, 1) + b"\0\5bench" + _NO_TAGS

Partition = tuple[bytes, int]
"""Topic id and number."""


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def compact(value: str | None) -> bytes:
    if value is None:
        return _NULL
    data = value.encode()
    return varint(len(data) + 1) + data


def compact_partitions(partitions: set[Partition]) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    topics = [
        topic_id + varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
        for topic_id, numbers in by_topic.items()
    ]
    return varint(len(topics) + 1) + b"".join(topics)


class ConsumerGroup:
    """Settled when every partition of its topic has an owner, evenly, and every member is in the newest epoch.

    The uniform assignor, which groups have that name none, gives no member two partitions more than another."""

    def __init__(self, name: str, topic: str, partitions: int) -> None:
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.members: list[ConsumerMember] = []
        self.epoch = 0
        """The newest that a member has."""
        self.in_epoch = 0
        """Members that have it."""
        self.owned = 0
        """Partitions that members own."""
        self.released = 0
        """How often members have given partitions up."""
        self.turn = 0
        """Members that ask next."""

    @property
    def is_settled(self) -> bool:
        if self.owned != self.partitions or self.in_epoch != len(self.members):
            return False
        sizes = [len(member.owned) for member in self.members]
        return max(sizes) - min(sizes) <= 1


class ConsumerMember:
    def __init__(self, port: int, group: ConsumerGroup, member_id: str, instance_id: str | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.seen_released = 0
        """Number of releases of the group when the member asked last."""
        self.waits = False
        """Whether a request is on its way."""
        self.gives_up = False
        """Whether that request says that the member has given partitions up."""
        self.partial = bytearray()

    def join(self) -> None:
        topics = varint(2) + compact(self.group.topic)
        self._send(0, struct.pack(">i", 300_000) + topics + _NULL + _NULL + varint(1))

    def beat(self) -> None:
        """A heartbeat in which nothing is new."""
        self._send(self.epoch, struct.pack(">i", -1) + 4 * _NULL)

    def give_up(self) -> None:
        """Say what is still owned."""
        self.gives_up = True
        self._send(self.epoch, struct.pack(">i", -1) + 3 * _NULL + compact_partitions(self.owned))

    def leave(self, epoch: int = LEAVING) -> None:
        self._send(epoch, struct.pack(">i", -1) + 4 * _NULL)

    def _send(self, epoch: int, rest: bytes) -> None:
        self.waits = True
        self.seen_released = self.group.released
        who = compact(self.group.name) + compact(self.member_id) + struct.pack(">i", epoch) + compact(self.instance_id)
        frame = _HEAD + who + _NULL + rest + _NO_TAGS
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def take(self) -> bytes | None:
        """The next answer, behind its size, if all of it is there. Raises ConnectionError."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self.partial += data
        if len(self.partial) < 4:
            return None
        (size,) = struct.unpack_from(">i", self.partial)
        if len(self.partial) < size + 4:
            return None
        answer = bytes(self.partial[4 : size + 4])
        del self.partial[: size + 4]
        return answer


class ConsumerSwarm:
    """Members on one port and what they do."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.poller = select.epoll()
        self.by_fd: dict[int, ConsumerMember] = {}
        self.named = 0

    def add(self, group: ConsumerGroup, count: int, instance_prefix: str | None = None) -> list[ConsumerMember]:
        """Connect members that have not joined yet."""
        added = []
        for _ in range(count):
            self.named += 1
            instance_id = None if instance_prefix is None else f"{instance_prefix}{len(group.members)}"
            member = ConsumerMember(self.port, group, f"{group.name}-{self.named:06}", instance_id)
            self.by_fd[member.socket.fileno()] = member
            self.poller.register(member.socket.fileno(), select.EPOLLIN)
            group.members.append(member)
            added.append(member)
        return added

    def leave(self, member: ConsumerMember, epoch: int = LEAVING) -> None:
        """Leave for good or, with LEAVING_STATIC, for a while, and disconnect."""
        member.leave(epoch)
        self.until(lambda: not member.waits)
        group = member.group
        group.owned -= len(member.owned)
        group.in_epoch -= member.epoch == group.epoch
        group.released += 1
        group.members.remove(member)
        self.poller.unregister(member.socket.fileno())
        del self.by_fd[member.socket.fileno()]
        member.socket.close()

    def settle(self, group: ConsumerGroup) -> None:
        """Work until the group is settled."""
        self.until(lambda: group.is_settled, group)

    def drain(self, group: ConsumerGroup) -> None:
        """Receive the answers that are due, so that every member may ask something new."""
        self.until(lambda: not any(member.waits for member in group.members))

    def until(self, done: Callable[[], bool], asking: ConsumerGroup | None = None) -> None:
        end = time.perf_counter() + DEADLINE_S
        tick = time.perf_counter() + TICK_S
        while not done():
            for fd, _ in self.poller.poll(TICK_S):
                self._receive(self.by_fd[fd])
            now = time.perf_counter()
            if now > end:
                raise RuntimeError("a group did not settle")
            if asking is not None and now > tick:
                tick = now + TICK_S
                self._ask(asking)

    def _ask(self, group: ConsumerGroup) -> None:
        """One member, in turn, has a look."""
        group.turn = (group.turn + 1) % len(group.members)
        member = group.members[group.turn]
        if not member.waits:
            member.join() if member.epoch == 0 else member.beat()

    def _ask_those_behind(self, group: ConsumerGroup) -> None:
        """Members in an older epoch, or with less than a fair share since partitions were given up."""
        share = -(-group.partitions // len(group.members))
        for member in group.members:
            behind = member.epoch < group.epoch
            waiting = len(member.owned) < share and member.seen_released < group.released
            if not member.waits and member.epoch > 0 and (behind or waiting):
                member.beat()

    def _receive(self, member: ConsumerMember) -> None:
        answer = member.take()
        if answer is None:
            return
        member.waits = False
        gave_up, member.gives_up = member.gives_up, False
        group = member.group
        (error,) = struct.unpack_from(">h", answer, 9)  # behind correlation id, tags and throttle time
        if error in _RETRY:
            return
        if error != 0:
            what = f"{member.member_id} in epoch {member.epoch}, port {self.port}"
            raise RuntimeError(f"ConsumerGroupHeartbeat: error {error} to {what}")
        _, position = _text(answer, 11)
        _, position = _text(answer, position)
        (epoch,) = struct.unpack_from(">i", answer, position)
        if epoch < 0:
            return  # it has left
        revoked = self._own(member, answer, position + 8)
        news = gave_up
        if epoch > group.epoch:
            group.epoch, group.in_epoch, news = epoch, 0, True
        if epoch != member.epoch or group.in_epoch == 0:
            group.in_epoch += epoch == group.epoch
            member.epoch = epoch
        group.released += gave_up
        if revoked:
            member.give_up()
        elif epoch < group.epoch or (len(member.owned) == 0 and member.seen_released < group.released):
            member.beat()
        if news:
            self._ask_those_behind(group)

    def _own(self, member: ConsumerMember, answer: bytes, position: int) -> bool:
        """Take the assignment, if there is one; returns whether some partitions are to be given up."""
        if answer[position] == 0xFF:
            return False
        topics, position = _varint(answer, position + 1)
        assigned: set[Partition] = set()
        for _ in range(topics - 1):
            topic_id = answer[position : position + 16]
            count, position = _varint(answer, position + 16)
            numbers = struct.unpack_from(f">{count - 1}i", answer, position)
            assigned.update((topic_id, number) for number in numbers)
            position += 4 * (count - 1) + 1
        revoked = not member.owned <= assigned
        member.group.owned += len(assigned) - len(member.owned)
        member.owned = assigned
        return revoked

    def close(self) -> None:
        for member in self.by_fd.values():
            with contextlib.suppress(OSError):
                member.socket.close()
        self.by_fd.clear()
        self.poller.close()


def _varint(answer: bytes, position: int) -> tuple[int, int]:
    """An unsigned number and the position behind it."""
    value = shift = 0
    while True:
        byte = answer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _text(answer: bytes, position: int) -> tuple[bytes, int]:
    """A compact string, empty for null, and the position behind it."""
    size, position = _varint(answer, position)
    end = position + max(size - 1, 0)
    return answer[position:end], end
