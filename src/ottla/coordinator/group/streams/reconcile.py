"""How a member moves towards its target: it first gives up what is not in its target, then gets what is free.

Stable -> UnrevokedTasks: it has to give up some, and stays in its epoch until it no longer owns them.
-> UnreleasedTasks: it has its new epoch; some of its target is still another's.
-> Stable: it has all of it. (Kafka's streams.CurrentAssignmentBuilder.)

An active task is free when no process has it active; a task of any kind only when no other member of the own process
has it, since there is one state store for it. A task that changes its role on a member (a warmed-up one becomes active,
say) is not given up in between: its state stays open (Kafka 4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.group import NOBODY, StreamsGroup
from ottla.coordinator.group.streams.member import NOTHING, HeldTasks, MemberState, StreamsMember
from ottla.errors import ErrorCode, KafkaError

NO_NUMBERS: frozenset[int] = frozenset()


def reconciled(
    group: StreamsGroup, member: StreamsMember, target_epoch: int, target: MemberTasks, owned: MemberTasks | None
) -> StreamsMember:
    """The member after one step. `owned` are the tasks that the member reports, None if it reports none.

    Raises FENCED_MEMBER_EPOCH for a member in an unknown state.
    """
    step = _Step(group, member, target_epoch, target, owned)
    if member.state is MemberState.STABLE:
        return member if member.epoch == target_epoch else step.advance(member.epoch)
    if member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or member.revoking.overlaps(owned):
            return member
        return step.advance(member.epoch + 1)
    if member.state is MemberState.UNRELEASED_TASKS:
        return step.advance(member.epoch)
    if owned is None or any(owned):
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    return step.advance(target_epoch)


Sets = dict[str, set[int]]
"""Partitions by subtopology, while they are sorted out."""


class _Difference(NamedTuple):
    kept: Sets
    given_up: Sets
    free: Sets
    """Tasks that it gets."""
    has_unreleased: bool


class _Step:
    def __init__(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        target_epoch: int,
        target: MemberTasks,
        owned: MemberTasks | None,
    ) -> None:
        self._group = group
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned

    def advance(self, epoch: int) -> StreamsMember:
        member, has, to_have = self._member, self._member.assigned, self._target
        active = _compare(has.active, to_have.active, self._is_free_active)
        standby = _compare(has.standby, to_have.standby, self._is_free_standby)
        warmup = _compare(has.warmup, to_have.warmup, self._is_free_warmup)
        _change_role(has.active, standby)
        _change_role(has.standby, warmup, standby.given_up)
        _change_role(has.warmup, standby, warmup.given_up)
        for has_role, role in ((has.standby, standby), (has.warmup, warmup)):
            for name, number in _common(has_role, to_have.active):
                _discard(role.given_up, name, number)
        revoking = HeldTasks(
            {name: {number: has.active[name][number] for number in found} for name, found in active.given_up.items()},
            _frozen(standby.given_up),
            _frozen(warmup.given_up),
        )
        waits = not revoking.is_empty and (self._owned is None or revoking.overlaps(self._owned))
        for has_role, role in ((has.standby, standby), (has.warmup, warmup)):
            for name, number in _common(has_role, to_have.active):
                if waits or number not in active.free.get(name, ()):
                    role.kept.setdefault(name, set()).add(number)  # until it is active here
        kept = {name: {number: has.active[name][number] for number in found} for name, found in active.kept.items()}
        if waits:
            return replace(
                member,
                state=MemberState.UNREVOKED_TASKS,
                epoch=epoch,
                previous_epoch=member.epoch,
                assigned=HeldTasks(kept, _frozen(standby.kept), _frozen(warmup.kept)),
                revoking=revoking,
            )
        for name, found in active.free.items():
            kept.setdefault(name, {}).update(dict.fromkeys(sorted(found), self._target_epoch))
        unreleased = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if unreleased else MemberState.STABLE,
            epoch=self._target_epoch,
            previous_epoch=member.epoch,
            assigned=HeldTasks(kept, _merged(standby.kept, standby.free), _merged(warmup.kept, warmup.free)),
            revoking=NOTHING,
        )

    # Whether the member may have a task that it does not have in this role

    def _is_free_active(self, name: str, number: int) -> bool:
        if (name, number) in self._group.active_processes:
            return False
        return not (self._is_standby_beside(name, number) or self._is_warmup_beside(name, number))

    def _is_free_standby(self, name: str, number: int) -> bool:
        mine, task = self._member.process_id, (name, number)
        if self._group.active_processes.get(task) == mine and number not in self._member.assigned.active.get(name, ()):
            return False
        return mine not in self._group.standby_processes.get(task, NOBODY) and not self._is_warmup_beside(name, number)

    def _is_free_warmup(self, name: str, number: int) -> bool:
        mine, task = self._member.process_id, (name, number)
        if self._group.active_processes.get(task) == mine or self._is_standby_beside(name, number):
            return False
        return mine not in self._group.warmup_processes.get(task, NOBODY)

    def _is_standby_beside(self, name: str, number: int) -> bool:
        """Whether another member of the process has it as a standby."""
        having = self._group.standby_processes.get((name, number), NOBODY)
        return self._member.process_id in having and number not in self._member.assigned.standby.get(name, ())

    def _is_warmup_beside(self, name: str, number: int) -> bool:
        having = self._group.warmup_processes.get((name, number), NOBODY)
        return self._member.process_id in having and number not in self._member.assigned.warmup.get(name, ())


def _compare(
    has: Mapping[str, Mapping[int, Any] | Set[int]],
    to_have: Mapping[str, frozenset[int]],
    is_free: Callable[[str, int], bool],
) -> _Difference:
    found = _Difference({}, {}, {}, False)
    has_unreleased = False
    for each in {**to_have, **has}:
        target, current = to_have.get(each, NO_NUMBERS), set(has.get(each, ()))
        kept = current & target
        wanted = target - kept
        free = {number for number in wanted if is_free(each, number)}
        has_unreleased = has_unreleased or len(free) < len(wanted)
        for into, numbers in ((found.kept, kept), (found.given_up, current - kept), (found.free, free)):
            if numbers:
                into[each] = numbers
    return found._replace(has_unreleased=has_unreleased)


def _change_role(
    has: Mapping[str, Mapping[int, Any] | Set[int]], into: _Difference, given_up: Sets | None = None
) -> None:
    """What the member has and may have in another role, it has in that role at once."""
    for name, number in _common(has, into.free):
        _discard(into.free, name, number)
        into.kept.setdefault(name, set()).add(number)
        if given_up is not None:
            _discard(given_up, name, number)


def _common(has: Mapping[str, Mapping[int, Any] | Set[int]], other: Mapping[str, Set[int]]) -> list[tuple[str, int]]:
    return [(name, number) for name, numbers in has.items() for number in numbers if number in other.get(name, ())]


def _discard(tasks: Sets, name: str, number: int) -> None:
    numbers = tasks.get(name)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del tasks[name]


def _frozen(tasks: Sets) -> dict[str, frozenset[int]]:
    return {name: frozenset(numbers) for name, numbers in tasks.items()}


def _merged(kept: Sets, free: Sets) -> dict[str, frozenset[int]]:
    return {each: frozenset(kept.get(each, NO_NUMBERS) | free.get(each, NO_NUMBERS)) for each in {**kept, **free}}
