"""Members of classic groups in the raw protocol, thousands of them in one epoll loop, for timing rebalances.

They speak the versions that librdkafka speaks (JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 3), each on its own
connection, and take part in rebalances as any client does. They do not wait for a heartbeat interval in order to
notice a rebalance: one member of each group asks again and again, and when it is told to join, each of the others asks
once. More heartbeats than that would only measure heartbeats.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterable

from ottla.protocol.messages import ApiKey

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
_VERSIONS = {JOIN: 5, SYNC: 3, BEAT: 3, LEAVE: 3}
_RETRY = {14, 15, 16, 41}  # loading, not available, not coordinator, election
_REJOIN = {22, 27}  # illegal generation, rebalance in progress
_MEMBER_ID_REQUIRED, _UNKNOWN_MEMBER = 79, 25
TICK_S = 0.002
"""How often a member of the one group that has not settled asks whether a rebalance has begun."""
TICK_OF_MANY_S = 0.02
"""The same, where many groups settle at once."""
DEADLINE_S = 120.0
SESSION_MS = 600_000
"""Longer than any measurement: who idles while the other side is measured stays a member."""

METADATA = struct.pack(">hi", 1, 1) + struct.pack(">h", 6) + b"topic0" + struct.pack(">ii", -1, 0)
"""A subscription to one topic, as the range assignor sends it."""
ASSIGNMENT = struct.pack(">hi", 1, 1) + struct.pack(">h", 6) + b"topic0" + struct.pack(">iii", 1, 0, -1)
_PROTOCOLS = struct.pack(">ih", 1, 5) + b"range" + struct.pack(">i", len(METADATA)) + METADATA


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def request(api: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api, _VERSIONS[ApiKey(api)], 1) + text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


class Group:
    """Settled when every member is in the newest generation and has its assignment."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Member] = []
        self.generation = -1
        self.settled = 0
        """Members that have their assignment of the newest generation."""
        self.left_generation = -1
        """The generation whose members have to join again."""

    @property
    def is_settled(self) -> bool:
        return self.settled == len(self.members)

    def has_assigned(self, generation: int) -> None:
        if generation > self.generation:
            self.generation, self.settled = generation, 0
        if generation == self.generation:
            self.settled += 1


class Member:
    def __init__(self, port: int, group: Group, instance_id: str | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.asked: int | None = None
        """The API of the request that waits for its answer."""
        self.stable = False
        self.partial = bytearray()
        self.retry = False

    def send(self, api: int, body: bytes) -> None:
        self.asked = api
        self.socket.sendall(request(api, body))

    def join(self) -> None:
        self.stable = False
        body = struct.pack(">ii", SESSION_MS, 300_000) + text(self.member_id) + text(self.instance_id)
        self.send(JOIN, text(self.group.name) + body + text("consumer") + _PROTOCOLS)

    def sync(self, members: Iterable[bytes]) -> None:
        each = [name + _ASSIGNMENT_BYTES for name in members]
        body = text(self.group.name) + struct.pack(">i", self.generation) + text(self.member_id)
        self.send(SYNC, body + text(self.instance_id) + struct.pack(">i", len(each)) + b"".join(each))

    def beat(self) -> None:
        body = text(self.group.name) + struct.pack(">i", self.generation) + text(self.member_id)
        self.send(BEAT, body + text(self.instance_id))

    def leave(self) -> None:
        body = text(self.group.name) + struct.pack(">i", 1) + text(self.member_id) + text(self.instance_id)
        self.send(LEAVE, body)


_ASSIGNMENT_BYTES = struct.pack(">i", len(ASSIGNMENT)) + ASSIGNMENT


class Swarm:
    """Members on one port and what they do. `hold` keeps them from joining again once they have an id."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.poller = select.epoll()
        self.by_fd: dict[int, Member] = {}
        self.hold = False

    def add(self, group: Group, count: int, instance_prefix: str | None = None) -> list[Member]:
        """Connect members that have not joined yet."""
        added = []
        for _ in range(count):
            name = None if instance_prefix is None else f"{instance_prefix}{len(group.members)}"
            member = Member(self.port, group, name)
            self.by_fd[member.socket.fileno()] = member
            self.poller.register(member.socket.fileno(), select.EPOLLIN)
            group.members.append(member)
            added.append(member)
        return added

    def drop(self, member: Member) -> None:
        self.poller.unregister(member.socket.fileno())
        del self.by_fd[member.socket.fileno()]
        member.socket.close()
        if member in member.group.members:
            member.group.members.remove(member)

    def learn_ids(self, members: list[Member]) -> None:
        """The first of the two steps of joining (KIP-394): every member gets its id."""
        self.hold = True
        for member in members:
            member.join()
        self.until(lambda: all(member.member_id and member.asked is None for member in members))
        self.hold = False

    def join(self, members: list[Member]) -> None:
        for member in members:
            member.join()

    def settle(self, groups: list[Group]) -> None:
        """Work until all groups are settled; members that have an assignment ask whether it still counts."""
        waiting = [group for group in groups if not group.is_settled]

        def settled() -> bool:
            while waiting and waiting[-1].is_settled:
                waiting.pop()
            return not waiting

        self.until(settled, waiting)

    def drain(self, groups: list[Group]) -> None:
        """Receive the answers that are due, so that every member may ask something new."""
        self.until(lambda: all(member.asked is None for group in groups for member in group.members))

    def until(self, done: object, waiting: list[Group] | None = None) -> None:
        assert callable(done)
        end = time.perf_counter() + DEADLINE_S
        every = TICK_S if waiting is None or len(waiting) == 1 else TICK_OF_MANY_S
        tick = time.perf_counter() + every
        while not done():
            for fd, _ in self.poller.poll(every):
                self._receive(self.by_fd[fd])
            now = time.perf_counter()
            if now > end:
                raise RuntimeError("a group did not settle")
            if now > tick:
                tick = now + every
                self._tick(waiting or ())

    def _tick(self, waiting: Iterable[Group]) -> None:
        for group in waiting:
            if group.is_settled:
                continue
            has_asked = False
            for member in group.members:
                if member.asked is None and member.retry:
                    member.retry = False
                    member.join()
                elif member.stable and not has_asked:
                    has_asked = True
                    if member.asked is None:
                        member.beat()

    def _must_join(self, member: Member) -> None:
        """The first of its generation that learns it brings the others to ask."""
        group = member.group
        if group.left_generation < member.generation:
            group.left_generation = member.generation
            for other in group.members:
                if other.stable and other.asked is None and other.generation == member.generation:
                    other.beat()

    def _receive(self, member: Member) -> None:
        data = member.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed a connection")
        member.partial += data
        if len(member.partial) < 4:
            return
        (size,) = struct.unpack_from(">i", member.partial)
        if len(member.partial) < size + 4:
            return
        answer = bytes(member.partial[4 : size + 4])
        del member.partial[: size + 4]
        asked, member.asked = member.asked, None
        (error,) = struct.unpack_from(">h", answer, 8)  # behind correlation id and throttle time, in all of them
        if error in _RETRY:
            member.retry = True
        elif error == _UNKNOWN_MEMBER:
            member.member_id = ""
            member.join()
        elif error in _REJOIN:
            member.join()
            if asked == BEAT:
                self._must_join(member)
        elif asked == JOIN:
            self._joined(member, error, answer)
        elif error != 0:
            raise RuntimeError(f"error {error} to {asked}")
        elif asked == SYNC:
            member.stable = True
            member.group.has_assigned(member.generation)
            if member.generation <= member.group.left_generation:
                member.beat()

    def _joined(self, member: Member, error: int, answer: bytes) -> None:
        (member.generation,) = struct.unpack_from(">i", answer, 10)
        _, position = _read(answer, 14)
        leader, position = _read(answer, position)
        mine, position = _read(answer, position)
        member.member_id = mine[2:].decode()
        if error == _MEMBER_ID_REQUIRED:
            if not self.hold:
                member.join()
            return
        if error != 0:
            raise RuntimeError(f"JoinGroup: error {error}")
        names = []
        if leader == mine:
            (count,) = struct.unpack_from(">i", answer, position)
            position += 4
            for _ in range(count):
                name, position = _read(answer, position)
                names.append(name)
                _, position = _read(answer, position)
                (length,) = struct.unpack_from(">i", answer, position)
                position += 4 + length
        member.sync(names)

    def close(self) -> None:
        for member in self.by_fd.values():
            with contextlib.suppress(OSError):
                member.socket.close()
        self.by_fd.clear()
        self.poller.close()


def _read(answer: bytes, position: int) -> tuple[bytes, int]:
    """A string with its length before it, and the position behind it."""
    (length,) = struct.unpack_from(">h", answer, position)
    end = position + 2 + max(length, 0)
    return answer[position:end], end
