"""How a member moves towards its target: it first gives up what is not in its target, then gets what is free.

Stable -> UnrevokedTasks: it has to give up some, and stays in its epoch until it no longer owns them.
-> UnreleasedTasks: it has its new epoch; some of its target is still another's.
-> Stable: it has all of it. (Kafka's streams.CurrentAssignmentBuilder.)

An active task is free when no process has it active; a task of any kind only when the member's own process does not
have it in another one, since there is one state store for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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


class _Difference(NamedTuple):
    kept: dict[str, frozenset[int]]
    given_up: dict[str, frozenset[int]]
    free: dict[str, frozenset[int]]
    """Tasks that it gets."""
    has_unreleased: bool


class _Step:
    def __init__(
        self, group: StreamsGroup, member: StreamsMember, target_epoch: int, target: MemberTasks,
        owned: MemberTasks | None,
    ) -> None:  # fmt: skip
        self._group = group
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned

    def advance(self, epoch: int) -> StreamsMember:
        member, has, to_have = self._member, self._member.assigned, self._target
        active = self._compare(has.active, to_have.active, is_active=True)
        standby = self._compare(has.standby, to_have.standby, is_active=False)
        warmup = self._compare(has.warmup, to_have.warmup, is_active=False)
        kept = {each: {number: has.active[each][number] for number in found} for each, found in active.kept.items()}
        revoking = HeldTasks(
            {each: {number: has.active[each][number] for number in found} for each, found in active.given_up.items()},
            standby.given_up,
            warmup.given_up,
        )
        if not revoking.is_empty and (self._owned is None or revoking.overlaps(self._owned)):
            return replace(
                member, state=MemberState.UNREVOKED_TASKS, epoch=epoch, previous_epoch=member.epoch,
                assigned=HeldTasks(kept, standby.kept, warmup.kept), revoking=revoking,
            )  # fmt: skip
        for each, found in active.free.items():
            kept.setdefault(each, {}).update(dict.fromkeys(sorted(found), self._target_epoch))
        waits = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
            epoch=self._target_epoch,
            previous_epoch=member.epoch,
            assigned=HeldTasks(kept, _merged(standby.kept, standby.free), _merged(warmup.kept, warmup.free)),
            revoking=NOTHING,
        )

    def _compare(
        self, has: Mapping[str, Mapping[int, Any] | Set[int]], to_have: Mapping[str, frozenset[int]], *, is_active: bool
    ) -> _Difference:
        found = _Difference({}, {}, {}, False)
        has_unreleased = False
        for each in {**to_have, **has}:
            target, current = to_have.get(each, NO_NUMBERS), frozenset(has.get(each, ()))
            kept = current & target
            wanted = target - kept
            free = frozenset(number for number in wanted if self._is_free((each, number), is_active))
            has_unreleased = has_unreleased or len(free) < len(wanted)
            for into, numbers in ((found.kept, kept), (found.given_up, current - kept), (found.free, free)):
                if numbers:
                    into[each] = numbers
        return found._replace(has_unreleased=has_unreleased)

    def _is_free(self, task: tuple[str, int], is_active: bool) -> bool:
        group, mine = self._group, self._member.process_id
        active = group.active_processes.get(task)
        if active is not None and (is_active or active == mine):
            return False
        return mine not in group.standby_processes.get(task, NOBODY) and mine not in group.warmup_processes.get(
            task, NOBODY
        )


def _merged(kept: dict[str, frozenset[int]], free: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    return {each: kept.get(each, NO_NUMBERS) | free.get(each, NO_NUMBERS) for each in {**kept, **free}}
