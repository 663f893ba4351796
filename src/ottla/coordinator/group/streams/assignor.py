"""The task assignor of streams groups: sticky, by load (KIP-1071).

Active tasks stay with their member as long as it has not more than its share; then they go to a member that has their
standby, whose state is warm; the rest goes to the process with the least load. Members of a process share its state
stores, so that a standby is of use only in another process than its active task.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
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
    """Its previous tasks."""


class SubtopologySize(NamedTuple):
    tasks: int
    is_stateful: bool
    """Whether it has a changelog, so that standbys replicate its state."""


def assign_tasks(
    members: Mapping[str, TaskMember], subtopologies: Mapping[str, SubtopologySize], standby_replicas: int
) -> dict[str, MemberTasks]:
    """What each of `members` is given. Each task has one active member and up to `standby_replicas` standbys, all in
    different processes; fewer where there are fewer processes. Raises TaskAssignorError where there are tasks and no
    members."""
    dealing = _Dealing(members, subtopologies, standby_replicas)
    dealing.deal_active([(name, number) for name, size in subtopologies.items() for number in range(size.tasks)])
    if standby_replicas > 0:
        stateful = [(name, size.tasks) for name, size in subtopologies.items() if size.is_stateful]
        dealing.deal_standbys([(name, number) for name, tasks in stateful for number in range(tasks)])
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
        self._active: dict[str, set[Task]] = {name: set() for name in members}
        self._standby: dict[str, set[Task]] = {name: set() for name in members}
        for name, member in members.items():
            process = self._processes.setdefault(member.process_id, _Process(len(self._processes)))
            process.counts[name] = 0
            for task in _listed(member.tasks.active):
                self._was_active[task] = name
            for task in _listed(member.tasks.standby):
                self._was_standby.setdefault(task, []).append(name)

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
        names = self._was_standby.get(task)
        if not names:
            return None
        found = names[0]
        first = self._process(found)
        load, count = first.load, self._count(found)
        for name in names[1:]:
            process = self._process(name)
            is_free = not is_standby or task not in process.tasks
            if process.load < load and is_free and self._count(name) < count:
                found, load, count = name, process.load, self._count(name)
        # Kafka looks at the first one's process, whichever was found, and so it is here: the tasks must be the same
        return None if is_standby and task in first.tasks else found

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


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _listed(tasks: Tasks) -> Iterable[Task]:
    return ((name, number) for name, numbers in tasks.items() for number in numbers)


def _by_subtopology(tasks: set[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for name, number in tasks:
        found.setdefault(name, set()).add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}
