"""The task assignor of streams groups: sticky, by load (KIP-1071).

Active tasks stay with their member as long as it has not more than its share; then they go to a member that has their
standby, or reports state of them, the most first; the rest goes to the process with the least load. Members of a
process share its state stores, so that a standby is of use only in another process than its active task. Where the
group names client tags (KIP-1071, `streams.rack.aware.assignment.tags`), standbys go to processes whose values differ
from those that have the task already, as far as there are any. (Kafka 4.4's assignor has the tags and does not use
them; KIP-708 says what they are for.)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import OttlaError

Task = tuple[str, int]
"""subtopology id, partition"""
Tasks = Mapping[str, frozenset[int]]
"""partitions by subtopology id"""


class TaskAssignorError(OttlaError):
    """There is nobody who could have a task."""


class MemberTasks(NamedTuple):
    active: Tasks = {}
    standby: Tasks = {}
    warmup: Tasks = {}


class TaskMember(NamedTuple):
    process_id: str
    instance_id: str | None
    rack_id: str | None
    client_tags: Mapping[str, str]
    tasks: MemberTasks
    """The tasks that it has."""
    offsets: Mapping[str, Mapping[int, int]] = {}
    """Where the state that it reports of tasks ends, by subtopology and partition."""


class SubtopologySize(NamedTuple):
    tasks: int
    is_stateful: bool
    """Whether it has a changelog, so that standbys replicate its state."""


def assign_tasks(
    members: Mapping[str, TaskMember],
    subtopologies: Mapping[str, SubtopologySize],
    standby_replicas: int,
    tags: Sequence[str] = (),
) -> dict[str, MemberTasks]:
    """What each of `members` is given. Each task has one active member and up to `standby_replicas` standbys, all in
    different processes, and as far apart by `tags` as can be; fewer where there are fewer processes. Raises
    TaskAssignorError where there are tasks and no members."""
    dealing = _Dealing(members, subtopologies, standby_replicas)
    dealing.deal_active([(name, number) for name, size in subtopologies.items() for number in range(size.tasks)])
    if standby_replicas > 0:
        stateful = [(name, size.tasks) for name, size in subtopologies.items() if size.is_stateful]
        tasks = [(name, number) for name, count in stateful for number in range(count)]
        if tags:
            dealing.deal_standbys_apart(tasks, tags)
        else:
            dealing.deal_standbys(tasks)
    return {name: dealing.tasks_of(name) for name in members}


@dataclass(slots=True)
class _Process:
    """The members of one process, and what they are given in all."""

    place: int
    """Among the processes: decides between equal loads."""
    counts: dict[str, int] = field(default_factory=dict)
    """tasks by member"""
    tasks: set[Task] = field(default_factory=set)
    total: int = 0

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self.total / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=self.counts.__getitem__)


class _Share:
    """How many tasks a member should have: as many as each other. Once it has them it leaves the count, so that the
    rest of the tasks is spread evenly over the rest of the members."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.each = self._rounded_up()

    def given(self, count: int) -> None:
        """A member has `count` tasks now."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = self._rounded_up()

    def _rounded_up(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0


class _Dealing:
    def __init__(
        self, members: Mapping[str, TaskMember], subtopologies: Mapping[str, SubtopologySize], replicas: int
    ) -> None:
        active = sum(size.tasks for size in subtopologies.values())
        stateful = sum(size.tasks for size in subtopologies.values() if size.is_stateful)
        self._members, self._replicas = members, replicas
        self._active_share = _Share(active, len(members))
        self._share = _Share(active + stateful * replicas, len(members))
        self._processes: dict[str, _Process] = {}
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}
        """Members that have a task's standby, then those that report state of it; the most state first."""
        self._active: dict[str, set[Task]] = {name: set() for name in members}
        self._standby: dict[str, set[Task]] = {name: set() for name in members}
        for name, member in members.items():
            process = self._processes.setdefault(member.process_id, _Process(len(self._processes)))
            process.counts[name] = 0
            for task in _listed(member.tasks.active):
                self._was_active[task] = name
        self._rank_copies()

    def _rank_copies(self) -> None:
        ranked: dict[Task, list[tuple[bool, int, str]]] = {}
        for name, member in self._members.items():
            for each, number in _listed(member.tasks.standby):
                offset = member.offsets.get(each, {}).get(number, 0)
                ranked.setdefault((each, number), []).append((False, -offset, name))
            for each, offsets in member.offsets.items():
                standbys = member.tasks.standby.get(each, ())
                for number, offset in offsets.items():
                    if number not in standbys:
                        ranked.setdefault((each, number), []).append((True, -offset, name))
        for task, found in ranked.items():
            found.sort(key=_by_rank)
            self._was_standby[task] = [name for _, _, name in found]

    def tasks_of(self, name: str) -> MemberTasks:
        return MemberTasks(_by_subtopology(self._active[name]), _by_subtopology(self._standby[name]))

    def deal_active(self, tasks: list[Task]) -> None:
        tasks.sort(key=_by_partition)
        tasks = [task for task in tasks if not self._keep(task, self._was_active.get(task))]
        tasks = [task for task in tasks if not self._keep(task, self._warmest(task, is_standby=False))]
        tasks.sort()  # what is new comes range by range
        queue = self._by_load()
        for task in tasks:
            if not queue:
                raise TaskAssignorError(f"there is no process for the task {task[0]}_{task[1]}")
            process = queue[0][2]
            name = process.least_loaded()
            self._active_share.given(self._give(task, name, self._active))
            heapq.heapreplace(queue, (process.load, process.place, process))

    def deal_standbys(self, tasks: list[Task]) -> None:
        tasks.sort(key=_by_partition, reverse=True)
        rest = []
        for task in tasks:
            for given in range(self._replicas):
                name = self._standby_again(task)
                if name is None:
                    rest.append((task, self._replicas - given))
                    break
                self._give(task, name, self._standby)
        rest.sort(reverse=True)
        queue = self._by_load()
        for task, replicas in rest:
            for _ in range(replicas):
                if not self._give_standby(task, queue):
                    break  # fewer processes than replicas

    def deal_standbys_apart(self, tasks: list[Task], tags: Sequence[str]) -> None:
        """As far apart by their tags as can be; then to who has state of the task and room, then by load."""
        zones = _Zones(self._members, self._processes, tags)
        holders = {task: [self._process(name)] for name, active in self._active.items() for task in active}
        for task in sorted(tasks, key=_by_partition, reverse=True):
            having = holders.get(task, [])
            for _ in range(self._replicas):
                names = [name for name in self._copies(task) if self._count(name) < self._share.each]
                process = zones.farthest(task, having)
                if process is None:
                    break
                kept = max(names, key=lambda name: zones.distance(self._process(name), having), default=None)
                if kept is None or zones.distance(self._process(kept), having) < zones.distance(process, having):
                    kept = process.least_loaded()
                self._give(task, kept, self._standby)
                having.append(self._process(kept))

    def _copies(self, task: Task) -> list[str]:
        """Members of other processes that have state of the task, best first."""
        names = dict.fromkeys(self._was_standby.get(task, ()))
        active = self._was_active.get(task)
        ordered = [*names] if active is None else [active, *names]
        return [name for name in ordered if task not in self._process(name).tasks]

    def _keep(self, task: Task, name: str | None) -> bool:
        """Give the task to the member that had it before, if its share allows. Returns whether it did."""
        if name is None or self._count(name) >= self._active_share.each:
            return False
        self._active_share.given(self._give(task, name, self._active))
        return True

    def _standby_again(self, task: Task) -> str | None:
        """A member with state of the task: the member that had it active, else one that had its standby."""
        name = self._was_active.get(task)
        if name is not None and task not in self._process(name).tasks and self._count(name) < self._share.each:
            return name
        name = self._warmest(task, is_standby=True)
        return name if name is not None and self._count(name) < self._share.each else None

    def _warmest(self, task: Task, *, is_standby: bool) -> str | None:
        """The least loaded member, by its own and its process's load, that had the task's standby; for a standby, in a
        process without the task."""
        found, load, count = None, 0.0, 0
        for name in self._was_standby.get(task, ()):
            process = self._process(name)
            if is_standby and task in process.tasks:
                continue
            if found is None or (process.load < load and self._count(name) < count):
                found, load, count = name, process.load, self._count(name)
        return found

    def _give_standby(self, task: Task, queue: list[tuple[float, int, _Process]]) -> bool:
        """Give a standby to the least loaded process without the task, if there is one."""
        passed = []
        found = False
        while queue and not found:
            process = heapq.heappop(queue)[2]
            if task not in process.tasks:
                self._give(task, process.least_loaded(), self._standby)
                found = True
            passed.append(process)
        for process in passed:
            heapq.heappush(queue, (process.load, process.place, process))
        return found

    def _give(self, task: Task, name: str, to: dict[str, set[Task]]) -> int:
        process = self._process(name)
        process.total += 1
        process.tasks.add(task)
        to[name].add(task)
        process.counts[name] = count = process.counts[name] + 1
        self._share.given(count)
        return count

    def _process(self, name: str) -> _Process:
        return self._processes[self._members[name].process_id]

    def _count(self, name: str) -> int:
        return self._process(name).counts[name]

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        queue = [(process.load, process.place, process) for process in self._processes.values()]
        heapq.heapify(queue)
        return queue


class _Zones:
    """Processes by the values of their tags: those of one zone are alike."""

    def __init__(
        self, members: Mapping[str, TaskMember], processes: Mapping[str, _Process], tags: Sequence[str]
    ) -> None:
        self._values: dict[int, tuple[str | None, ...]] = {}
        """Values of the tags, by the place of a process; None for one that it lacks."""
        self._queues: dict[tuple[str | None, ...], list[tuple[float, int, _Process]]] = {}
        for member in members.values():
            process = processes[member.process_id]
            if process.place not in self._values:
                values = self._values[process.place] = tuple(member.client_tags.get(tag) for tag in tags)
                heapq.heappush(self._queues.setdefault(values, []), (process.load, process.place, process))

    def distance(self, process: _Process, others: Sequence[_Process]) -> int:
        """How many of its tags have a value that none of the others has."""
        return self._distance(self._values[process.place], others)

    def _distance(self, values: tuple[str | None, ...], others: Sequence[_Process]) -> int:
        taken = [self._values[each.place] for each in others]
        return sum(
            value is not None and all(value != other[number] for other in taken) for number, value in enumerate(values)
        )

    def farthest(self, task: Task, others: Sequence[_Process]) -> _Process | None:
        """The process without the task that is farthest from the others; of equals that with the least load."""
        best: tuple[int, float, int, _Process] | None = None
        for values, queue in self._queues.items():
            process = self._lightest(queue, task)
            if process is not None:
                found = (-self._distance(values, others), process.load, process.place, process)
                best = found if best is None else min(best, found)
        return None if best is None else best[-1]

    @staticmethod
    def _lightest(queue: list[tuple[float, int, _Process]], task: Task) -> _Process | None:
        passed, found = [], None
        while queue and found is None:
            load, _, process = queue[0]
            if load != process.load:  # it has been given tasks since
                heapq.heapreplace(queue, (process.load, process.place, process))
                continue
            if task not in process.tasks:
                found = process
            else:
                passed.append(heapq.heappop(queue))
        for each in passed:
            heapq.heappush(queue, each)
        return found


def _by_rank(ranked: tuple[bool, int, str]) -> tuple[bool, int]:
    return ranked[:2]


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _listed(tasks: Tasks) -> Iterable[Task]:
    return ((name, number) for name, numbers in tasks.items() for number in numbers)


def _by_subtopology(tasks: set[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for name, number in tasks:
        found.setdefault(name, set()).add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}
