"""Warm-up tasks: a stateful task that moves stays where it runs until the member that it moves to has restored its
state (KIP-1071).

Members report how far they have restored the tasks that they do not run, and where these end. The target assignment is
the assignor's; what members move to meanwhile is the target with these tasks held back. It is not in the log, so that
a coordinator that loads the group decides again, from what members have and report.

Kafka 4.4 takes the reports and its settings, and leaves the target as it is; what is here follows its pull requests
for 4.5, in short: a task waits only for members that report, only where it runs or can run warm meanwhile, and as many
of a group at once as it may have warm-ups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.coordinator.group.streams.assignor import MemberTasks, Task, Tasks
from ottla.coordinator.group.streams.member import NO_TASKS, StreamsMember

UNKNOWN_OFFSET: Final = (1 << 63) - 1
"""What a client reports of a task whose offsets it does not know."""

Offsets = Mapping[str, Mapping[int, int]]
"""By subtopology and partition."""


class Reported(NamedTuple):
    """What a member reports of its tasks that are not running; None for nothing yet."""

    offsets: Offsets | None = None
    end_offsets: Offsets | None = None

    def is_caught_up(self, task: Task, lag: int) -> bool:
        offset, end = _of(self.offsets, task), _of(self.end_offsets, task)
        if offset is None or end is None or UNKNOWN_OFFSET in (offset, end):
            return False
        return end - offset <= lag

    def is_restoring(self, task: Task) -> bool:
        return _of(self.offsets, task) is not None


def _of(offsets: Offsets | None, task: Task) -> int | None:
    return None if offsets is None else offsets.get(task[0], {}).get(task[1])


class Limits(NamedTuple):
    """Settings of a group."""

    replicas: int
    """Warm-up tasks at most."""
    lag: int
    """Records that a copy may be behind to be active."""


class Refined(NamedTuple):
    """What members move to, of an assignment epoch."""

    epoch: int = -1
    limits: Limits = Limits(0, 0)
    others: Mapping[str, MemberTasks] = {}
    """By member, where it is not the target."""


NOTHING_REPORTED: Final = Reported()


def refine(
    members: Mapping[str, StreamsMember],
    targets: Mapping[str, MemberTasks],
    reports: Mapping[str, Reported],
    stateful: Collection[str],
    limits: Limits,
    epoch: int,
) -> dict[str, MemberTasks]:
    """What members move to for now, for those for whom that is not their target. Each task is active on as many
    members as in the target: one. `stateful` are the subtopologies with changelogs, `epoch` is that of the targets."""
    is_refined = any(
        member.assigned.warmup
        or member.revoking.warmup
        or (member.is_reconciled_to(epoch) and not member.assigned.runs(targets.get(name, NO_TASKS)))
        for name, member in members.items()
    )
    if limits.replicas == 0 or not (is_refined or any(each.offsets is not None for each in reports.values())):
        return {}
    refining = _Refining(members, targets, reports, limits, is_refined)
    return refining.run(stateful)


class _Waiting(NamedTuple):
    """A task that is held back."""

    task: Task
    runs_on: str
    moves_to: str


class _Refining:
    def __init__(
        self,
        members: Mapping[str, StreamsMember],
        targets: Mapping[str, MemberTasks],
        reports: Mapping[str, Reported],
        limits: Limits,
        is_refined: bool,
    ) -> None:
        self._members, self._targets = members, targets
        self._reports, self._limits = reports, limits
        self._is_refined = is_refined
        self._active: dict[Task, str] = {}
        """The member that runs a task, and is not about to give it up."""
        self._copies: dict[Task, list[str]] = {}
        """Members with a standby or a warm-up."""

    def run(self, stateful: Collection[str]) -> dict[str, MemberTasks]:
        moving = self._moving(stateful)
        if not moving:
            return {}
        for name, member in self._members.items():
            self._active.update(dict.fromkeys(_listed(member.assigned.active, stateful), name))
            for kind in (member.assigned.standby, member.assigned.warmup):
                for task in _listed(kind, stateful):
                    self._copies.setdefault(task, []).append(name)
        waiting = [each for each in (self._waiting(task, name) for task, name in sorted(moving)) if each is not None]
        return self._placed(waiting)

    def _moving(self, stateful: Collection[str]) -> list[tuple[Task, str]]:
        """Stateful tasks, each with the member that gets it."""
        found = []
        for name, target in self._targets.items():
            member = self._members.get(name)
            if member is None:
                continue
            for each, numbers in target.active.items():
                if each in stateful:
                    has = member.assigned.active.get(each, {})
                    found += [((each, number), name) for number in numbers if number not in has]
        return found

    def _waiting(self, task: Task, name: str) -> _Waiting | None:
        """None for a task that moves at once."""
        process = self._members[name].process_id
        runs_on = self._active.get(task)
        if not self._reports_offsets(name) or (runs_on is not None and self._members[runs_on].process_id == process):
            return None
        copies = self._copies.get(task, [])
        lag = self._limits.lag
        ready = [each for each in copies if self._report(each).is_caught_up(task, lag)]
        if any(self._members[each].process_id == process for each in ready):
            return None
        if runs_on is not None:
            report = self._report(runs_on)
            if not report.is_restoring(task) or report.is_caught_up(task, lag):
                return _Waiting(task, runs_on, name)
        elif self._is_on_disk(task, process):
            return None  # the member has come back, say
        if not ready:
            return None  # it would not run anywhere warm
        standbys = [each for each in ready if task[1] in self._targets.get(each, NO_TASKS).standby.get(task[0], ())]
        others = [each for each in ready if each not in standbys]
        return _Waiting(task, min(others or standbys, key=self._load), name)

    def _reports_offsets(self, name: str) -> bool:
        """Whether the member's client tells how far it has restored. What members reported to the coordinator before
        this one is not known; that some of them warm up, or run what is to be another's, shows that they do."""
        return self._is_refined or self._report(name).offsets is not None

    def _is_on_disk(self, task: Task, process: str) -> bool:
        reported = (self._report(name) for name, member in self._members.items() if member.process_id == process)
        return any(each.is_restoring(task) for each in reported)

    def _report(self, name: str) -> Reported:
        return self._reports.get(name, NOTHING_REPORTED)

    def _load(self, name: str) -> tuple[int, str]:
        assigned = self._members[name].assigned
        tasks = sum(map(len, (*assigned.active.values(), *assigned.standby.values(), *assigned.warmup.values())))
        return tasks, name

    # Where they are meanwhile

    def _placed(self, waiting: Iterable[_Waiting]) -> dict[str, MemberTasks]:
        """The target with these tasks where they run. The member that gets one keeps its standby of it, or warms up,
        while there are warm-ups left: first those under way, then on the processes with the fewest."""
        drafts: dict[str, tuple[set[Task], set[Task], set[Task]]] = {}

        def draft(name: str) -> tuple[set[Task], set[Task], set[Task]]:
            if name not in drafts:
                target = self._targets.get(name, NO_TASKS)
                drafts[name] = {*_listed(target.active)}, {*_listed(target.standby)}, {*_listed(target.warmup)}
            return drafts[name]

        runs_on_processes: dict[str, list[Task]] = {}
        cold: list[_Waiting] = []
        left = self._limits.replicas
        warming: dict[str, int] = {}
        """Warm-ups by process."""
        for each in waiting:
            draft(each.moves_to)[0].discard(each.task)
            draft(each.runs_on)[0].add(each.task)
            runs_on_processes.setdefault(self._members[each.runs_on].process_id, []).append(each.task)
            copy = self._copy_beside(each)
            if copy is None:
                cold.append(each)
            elif _has(self._members[copy].assigned.standby, each.task):
                draft(copy)[1].add(each.task)
            elif left > 0:
                left -= 1
                draft(copy)[2].add(each.task)
                _count(warming, self._members[copy].process_id)
        while cold and left > 0:
            place = min(range(len(cold)), key=lambda n: (warming.get(self._process_of(cold[n]), 0), n))
            each = cold.pop(place)
            left -= 1
            draft(each.moves_to)[2].add(each.task)
            _count(warming, self._process_of(each))
        for name, member in self._members.items():  # a process has a task once
            for task in runs_on_processes.get(member.process_id, ()):
                if _has(self._targets.get(name, NO_TASKS).standby, task):
                    draft(name)[1].discard(task)
        return {name: MemberTasks(*map(_by_subtopology, kinds)) for name, kinds in sorted(drafts.items())}

    def _process_of(self, each: _Waiting) -> str:
        return self._members[each.moves_to].process_id

    def _copy_beside(self, each: _Waiting) -> str | None:
        """The member of the process that gets a task which has a copy of it."""
        process = self._process_of(each)
        found = [name for name in self._copies.get(each.task, ()) if self._members[name].process_id == process]
        return each.moves_to if each.moves_to in found else next(iter(found), None)


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _has(tasks: Tasks, task: Task) -> bool:
    return task[1] in tasks.get(task[0], ())


def _listed(tasks: Mapping[str, Iterable[int]], names: Collection[str] | None = None) -> list[Task]:
    return [(each, number) for each, numbers in tasks.items() if names is None or each in names for number in numbers]


def _by_subtopology(tasks: set[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for each, number in sorted(tasks):
        found.setdefault(each, set()).add(number)
    return {each: frozenset(numbers) for each, numbers in found.items()}
