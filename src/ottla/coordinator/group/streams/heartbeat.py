"""StreamsGroupHeartbeat: a member of a streams application joins, stays, or leaves (KIP-1071).

What a heartbeat does, in this order: find or make the group and the member; write what has changed of the member; see
whether the topics allow the topology to run, and name those that are missing; begin a new group epoch if any of this
has changed; compute the target assignment if that is behind and may be computed; move the member one step towards its
target (Kafka's `GroupMetadataManager.streamsGroupHeartbeat`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.coordinator.effects import Token
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer.metadata_hash import group_hash
from ottla.coordinator.group.consumer.migration import resume, retire
from ottla.coordinator.group.kind import REBALANCES
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.requests import StreamsHeartbeat, TaskOffsets
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams import descriptions, static_members, target, timers, warmups
from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.describe import find, task_rows
from ottla.coordinator.group.streams.endpoints import endpoints
from ottla.coordinator.group.streams.group import MEMBER, MEMBER_CURRENT, TOPOLOGY, Asked, StreamsGroup, Topology
from ottla.coordinator.group.streams.member import LEAVING, LEAVING_STATIC, NO_TASKS, MemberState, StreamsMember
from ottla.coordinator.group.streams.member_removal import fence
from ottla.coordinator.group.streams.reconcile import reconciled
from ottla.coordinator.group.streams.topology import TASKS_MAX, ConfiguredTopology, configure
from ottla.coordinator.group.streams.warmups import Limits, Offsets, Refined, Reported
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import StreamsGroupTopologyValue

METADATA_REFRESH_INTERVAL_MS: Final = 3_600_000
"""After which the topics are looked at again though none is known to have changed."""
STALE_TOPOLOGY, SHUTDOWN_APPLICATION, ASSIGNMENT_DELAYED, MISSING_CLIENT_TAGS = 0, 4, 5, 6
"""Statuses of a response; the others are `TopologyStatus`."""
REJOIN = "The member must abandon all its partitions and rejoin."


def heartbeat(state: GroupState, token: Token, request: StreamsHeartbeat) -> None:
    """Replies with a StreamsGroupHeartbeat response, and beside its fields `creatable`: the internal topics that are
    missing, by name. Raises KafkaError."""
    check(request)
    if request.member_epoch in (LEAVING, LEAVING_STATIC):
        _leave(state, token, request)
    else:
        _Heartbeat(state, request).run(token)


def check(request: StreamsHeartbeat) -> None:
    """Raises INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
    epoch, topology, owned = request.member_epoch, request.topology, request.owned
    if topology is not None:
        has_pattern = any(each.source_topic_regex for each in topology.subtopologies)
        _require(not has_pattern, "Regular expressions for source topics are not supported yet.")
    for what, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        _require(text is None or text.strip(), f"{what} can't be empty.")
    if epoch == 0:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        for what, rows in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), owned, strict=True):
            _require(rows is not None and not rows, f"{what} must be empty when (re-)joining.")
        if topology is None:
            raise KafkaError(ErrorCode.invalid_request, "Topology must be non-null when (re-)joining.")
        _check_changelogs(topology)
    else:
        _require(epoch != LEAVING_STATIC or request.instance_id is not None, "InstanceId can't be null.")
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
        _require(epoch >= LEAVING_STATIC, message)
    said = [rows is not None for rows in owned]
    _require(all(said) or not any(said), "If one task-type is non-null, all must be non-null.")
    _require(epoch == 0 or topology is None, "Topology can only be provided when (re-)joining.")


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.invalid_request, message)


def _check_changelogs(topology: StreamsGroupTopologyValue) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    ErrorCode.streams_invalid_topology,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


class _Heartbeat:
    """One heartbeat, of a member that does not leave."""

    def __init__(self, state: GroupState, request: StreamsHeartbeat) -> None:
        self._state = state
        self._request = request
        self._joins = request.member_epoch == 0
        self._config = state.config.of_streams_group(state.image, request.group_id)
        self._records: list[GroupRecord] = []
        self._statuses: list[tuple[int, str]] = []
        self._replaced: ClassicGroup | None = None
        """An empty classic group that the streams group takes the place of."""
        self._gone: StreamsMember | None = None
        """The static member in whose place this one comes."""
        self._reported: Reported | None = None
        """What the member reports of its tasks, if it does."""
        self._refined = Refined()
        self._asked: Asked | None = None
        self._only_refined = False
        """Whether the group epoch grows only for members to go on towards their target."""
        self._epoch = 0

    def run(self, token: Token) -> None:
        state, request = self._state, self._request
        group = self._group()
        try:
            response = self._decided(group)
        except KafkaError:
            if request.member_id not in group.members:
                group.reports.pop(request.member_id, None)
            raise
        state.apply(self._records, self._undone(group))
        if self._replaced is not None:
            retire(state, self._replaced)
        self._start_timers(response.pop("moved"))
        state.reply(token, response)

    def _decided(self, group: StreamsGroup) -> dict[str, Any]:
        """The response, and beside it the member as it will be. Fills the records."""
        state, request = self._state, self._request
        old = self._member(group)
        new = self._changed(old)
        if self._gone is not None and new.process_id != old.process_id:
            new = static_members.without_others(group, new, self._gone.member_id)
        if new != old:
            self._records.append(put(group.key(MEMBER, new.member_id), new.to_metadata()))
        topology = self._topology(group, new)
        changes = new != old if request.instance_id is None else _concerns_group(old, new)
        configured = self._configure(group, topology, new, member_changed=changes)
        if group.is_empty and self._config.initial_rebalance_delay_ms > 0:
            timers.start_initial(state, request.group_id, self._config.initial_rebalance_delay_ms)
        goal = target.update(
            state,
            group,
            self._epoch,
            new,
            configured,
            self._configs(),
            self._records,
            replaced=self._gone_id(),
            only_refined=self._only_refined,
        )
        if goal.delayed is not None:
            self._statuses.append((ASSIGNMENT_DELAYED, goal.delayed))
        self._refine(group, new, goal, configured)
        moved = self._reconcile(group, new, goal)
        if new.member_id in group.members:  # it is alive, also where the answer fails
            timers.start_session(state, group.group_id, new.member_id)
        if request.shuts_down and group.shutdown_requested_by is None:
            group.shutdown_requested_by = request.member_id
        response = self._response(group, old, moved, configured)
        stale = any(code == STALE_TOPOLOGY for code, _ in self._statuses)
        if request.is_version_1 and not stale:
            response["topology_description_required"] = descriptions.is_required(state, group, topology)
        self._asked = group.asked
        response["moved"] = (new, moved)
        return response

    def _group(self) -> StreamsGroup:
        """The group; read-only if it is new, as another one will replace it. Raises GROUP_ID_NOT_FOUND or
        GROUP_MAX_SIZE_REACHED."""
        state, group_id = self._state, self._request.group_id
        group = state.groups.get(group_id)
        if not self._joins:
            if group is None:
                raise KafkaError(ErrorCode.group_id_not_found, f"Streams group {group_id} not found.")
            return find(state, group_id)
        if group is None:
            found = StreamsGroup(group_id)
        elif isinstance(group, ClassicGroup) and group.is_empty:
            self._replaced = group
            self._records += group.tombstones()
            found = StreamsGroup(group_id)
        else:
            found = find(state, group_id)
        limit = state.config.streams_max_size
        if would_grow(found, self._request.member_id, self._request.instance_id) and len(found.members) >= limit:
            message = f"The streams group has reached its maximum capacity of {limit} members."
            raise KafkaError(ErrorCode.group_max_size_reached, message)
        return found

    def _member(self, group: StreamsGroup) -> StreamsMember:
        """Raises UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID or UNRELEASED_INSTANCE_ID."""
        member_id, received = self._request.member_id, self._request.member_epoch
        instance_id = self._request.instance_id
        if self._joins:
            if instance_id is None:
                return group.members.get(member_id) or StreamsMember(member_id)
            member, gone = static_members.joining(group, member_id, instance_id, self._records)
            self._gone = gone
            return member
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = static_members.known(group, member_id, instance_id)
        if received == member.epoch:
            return member
        size = "greater" if received > member.epoch else "smaller"
        if received < member.epoch and received == member.previous_epoch:
            owned = self._owned()
            if owned is not None and member.assigned.contains(owned):
                return member  # it has missed an answer
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The streams group member has a {size} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). {REJOIN}",
        )

    def _owned(self) -> MemberTasks | None:
        """Tasks that the member reports; None if it reports nothing."""
        active, standby, warmup = self._request.owned
        if active is None or standby is None or warmup is None:
            return None
        return MemberTasks(_tasks(active), _tasks(standby), _tasks(warmup))

    def _changed(self, old: StreamsMember) -> StreamsMember:
        """Raises INVALID_REQUEST for two tags of one name."""
        request = self._request
        tags, timeout_ms = request.client_tags, request.rebalance_timeout_ms
        if tags is not None:
            _require_unique(key for key, _ in tags)
        return replace(
            old,
            instance_id=old.instance_id if request.instance_id is None else request.instance_id,
            rack_id=old.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            topology_epoch=old.topology_epoch if request.topology is None else request.topology.epoch,
            client_id=request.client_id,
            client_host=request.client_host,
            process_id=old.process_id if request.process_id is None else request.process_id,
            client_tags=old.client_tags if tags is None else dict(tags),
            user_endpoint=request.user_endpoint if self._joins else request.user_endpoint or old.user_endpoint,
        )

    # What it runs

    def _topology(self, group: StreamsGroup, member: StreamsMember) -> Topology:
        """The topology of the group. Raises INVALID_REQUEST for another one, FENCED_MEMBER_EPOCH without one."""
        said = self._request.topology
        known = group.topology
        if said is not None:
            _require_unique(each.subtopology_id for each in said.subtopologies)
            if known is None:
                self._records.append(put(group.key(TOPOLOGY), said))
                return Topology(said)
            if said.epoch >= known.epoch:
                _require(known == Topology(said), "Topology updates are not supported yet.")
        if known is None:
            raise KafkaError(ErrorCode.fenced_member_epoch, f"The group has no topology. {REJOIN}")
        if member.topology_epoch < known.epoch:
            detail = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
            self._statuses.append((STALE_TOPOLOGY, f"{detail} {known.epoch}."))
        return known

    def _configure(
        self, group: StreamsGroup, topology: Topology, member: StreamsMember, *, member_changed: bool
    ) -> ConfiguredTopology:
        """The topology with the topics as they are; a new group epoch if these, the member or settings have changed."""
        state, now_ms = self._state, self._state.now.wall_ms
        metadata_hash, configured, bumps = group.metadata_hash, group.configured, member_changed
        if group.topology is None or configured is None or group.has_metadata_expired(now_ms):
            metadata_hash = group_hash(topology.topics, state.image, state.topic_hashes)
            is_other = metadata_hash != group.metadata_hash
            bumps = bumps or is_other
            if group.topology is None or configured is None or is_other:
                configured = configure(topology.value, self._partitions_of)
                group.set_configured(configured)
            if not is_other:  # else the next epoch says when, should it come to that
                group.refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
                group.refresh_epoch = group.epoch
        validated = self._validated_epoch(configured)
        self._report(group)
        configs = self._configs()
        bumps = bumps or validated != group.validated_topology_epoch or configs != group.assignment_configs
        self._epoch = group.epoch
        if not bumps:
            bumps = self._only_refined = self._goes_on(group, member, configured)
        if bumps:
            self._epoch += 1
            self._records.append(group.metadata_record(self._epoch, metadata_hash, validated, configs))
            group.refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
            group.refresh_epoch = self._epoch
            state.observe(REBALANCES, group, f"epoch {self._epoch}")
        return configured

    def _partitions_of(self, name: str) -> int | None:
        topic = self._state.image.topic(name)
        return None if topic is None else len(topic.partitions)

    def _validated_epoch(self, configured: ConfiguredTopology) -> int:
        """Raises INVALID_REQUEST if the member reports tasks that do not exist."""
        if not configured.is_ready or configured.subtopologies is None:
            return -1
        for rows in self._request.owned:
            for name, numbers in rows or ():
                subtopology = configured.subtopologies.get(name)
                if subtopology is None:
                    message = f"Subtopology {name} does not exist in the topology."
                    raise KafkaError(ErrorCode.invalid_request, message)
                for number in numbers:
                    message = (
                        f"Task {number} for subtopology {name} is invalid. Number of tasks for this subtopology: "
                        f"{subtopology.tasks}"
                    )
                    _require(0 <= number < subtopology.tasks, message)
        return configured.epoch

    def _configs(self) -> dict[str, str]:
        configs = {target.STANDBY_REPLICAS: str(self._config.standby_replicas)}
        if self._config.rack_aware_tags:
            configs[target.TAGS] = ",".join(self._config.rack_aware_tags)
        return configs

    def _report(self, group: StreamsGroup) -> None:
        """Keep what the member reports of its tasks. Raises INVALID_REQUEST."""
        request = self._request
        if request.task_offsets is None and request.task_end_offsets is None:
            return
        before = group.reports.get(request.member_id, warmups.NOTHING_REPORTED)
        offsets = before.offsets if request.task_offsets is None else _offsets(request.task_offsets)
        ends = before.end_offsets if request.task_end_offsets is None else _offsets(request.task_end_offsets)
        self._reported = group.reports[request.member_id] = Reported(offsets, ends)
        if group.refined.others and self._reported != before:
            group.is_refining = True

    # What it moves to

    def _limits(self) -> Limits:
        return Limits(self._config.warmup_replicas, self._config.acceptable_recovery_lag)

    def _goes_on(self, group: StreamsGroup, member: StreamsMember, configured: ConfiguredTopology) -> bool:
        """Whether members that have done all that they were told have to move, though nothing of the group has changed:
        a task of a stable group that has waited is warm, or may warm up; or the coordinator before this one had them
        move to something else, and those of the same epoch would wait for each other."""
        limits = self._limits()
        is_lost = group.refined.epoch != group.epoch and group.shown_state == "Reconciling"
        if not is_lost and (not (group.is_refining or group.refined.limits != limits) or group.shown_state != "Stable"):
            return False
        members, epoch = target.with_member(group, member, self._gone_id()), group.epoch
        others = warmups.refine(members, group.targets, group.reports, configured.stateful, limits, epoch)
        moves = any(
            each.is_reconciled_to(epoch) and not each.assigned.is_same(others.get(name) or group.target(name))
            for name, each in members.items()
        )
        group.refined = Refined(group.epoch + moves, limits, others)
        group.is_refining = False
        return moves

    def _refine(
        self, group: StreamsGroup, member: StreamsMember, goal: target.Target, configured: ConfiguredTopology
    ) -> None:
        """Decide what members move to in the goal's epoch, unless that is known."""
        limits = self._limits()
        if group.refined.epoch == goal.epoch:
            if self._gone is not None and self._gone.member_id in group.refined.others:
                others = {**group.refined.others}
                others[member.member_id] = others.pop(self._gone.member_id)
                group.refined = group.refined._replace(others=others)
            self._refined = group.refined
            return
        members = target.with_member(group, member, self._gone_id())
        others = warmups.refine(members, goal.tasks, group.reports, configured.stateful, limits, goal.epoch)
        self._refined = group.refined = Refined(goal.epoch, limits, others)
        group.is_refining = goal.delayed is not None or bool(others)

    def _gone_id(self) -> str | None:
        return None if self._gone is None or self._gone.member_id == self._request.member_id else self._gone.member_id

    # What it has

    def _reconcile(self, group: StreamsGroup, member: StreamsMember, goal: target.Target) -> StreamsMember:
        if member.is_reconciled_to(goal.epoch):
            return member
        for rows in self._request.owned:
            _require_unique(name for name, _ in rows or ())
        name = member.member_id
        tasks = group.refined.others.get(name) or goal.tasks.get(name, NO_TASKS)
        moved = reconciled(group, member, goal.epoch, tasks, self._owned())
        if moved != member:
            self._records.append(put(group.key(MEMBER_CURRENT, member.member_id), moved.to_current()))
        return moved

    def _start_timers(self, change: tuple[StreamsMember, StreamsMember]) -> None:
        state = self._state
        member, moved = change
        group = find(state, self._request.group_id)
        group.asked = self._asked
        if self._gone is not None:  # its removal has taken them from the member that has its id
            group.refined = self._refined
        if self._reported is not None:
            group.reports[moved.member_id] = self._reported
        gone_id = self._gone_id()
        if gone_id is not None:
            timers.cancel_all(state, group, gone_id)
        timers.start_session(state, group.group_id, moved.member_id)
        if moved is member or moved == member:
            return
        if moved.state is MemberState.UNREVOKED_TASKS:
            timers.start_rebalance(state, group, moved)
        else:
            timers.cancel_rebalance(state, group, moved.member_id)

    def _undone(self, group: StreamsGroup) -> Any:
        """A function to run, beside restoring the state, if the records are not committed."""

        def undone() -> None:
            group.set_configured(None)
            group.refined, group.is_refining, group.asked = Refined(), True, None
            if self._request.member_id not in group.members:
                group.reports.pop(self._request.member_id, None)
            if self._gone is not None and self._gone.member_id in group.members:
                timers.start_session(self._state, group.group_id, self._gone.member_id)
            if self._replaced is not None:
                resume(self._state, self._replaced)
            timers.undo(self._state, group.group_id, self._request.member_id)

        return undone

    # What it is told

    def _misses(self, member: StreamsMember) -> bool:
        """Whether the member reports other tasks than it has: it may have missed the answer with them. (Kafka 4.4
        does not repeat it: tasks run nowhere until the next rebalance.)"""
        owned = self._owned()
        return owned is not None and not member.assigned.is_same(owned)

    def _response(
        self, group: StreamsGroup, old: StreamsMember, new: StreamsMember, configured: ConfiguredTopology
    ) -> dict[str, Any]:
        """The response; it has the tasks if the member joins or its tasks have changed."""
        response: dict[str, Any] = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "member_id": new.member_id,
            "member_epoch": new.epoch,
            "heartbeat_interval": self._config.heartbeat_interval_ms,
            "acceptable_recovery_lag": self._config.acceptable_recovery_lag,
            "task_offset_interval": self._config.task_offset_interval_ms,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "partitions_by_user_endpoint": None,
        }
        changed, moved = old.assigned != new.assigned, old.user_endpoint != new.user_endpoint
        if self._joins or changed or self._misses(new):
            response["active_tasks"] = task_rows(new.assigned.active)
            response["standby_tasks"] = task_rows(new.assigned.standby)
            response["warmup_tasks"] = task_rows(new.assigned.warmup)
        if self._joins or changed or moved:
            group.endpoints.pop(new.member_id, None)
        if moved or (changed and new.user_endpoint is not None):
            group.endpoint_epoch += 1
        if group.endpoint_epoch != self._request.endpoint_epoch:
            response["partitions_by_user_endpoint"] = endpoints(group, new, self._state.image, self._gone_id())
        # (Of a group that is new the epoch is not kept.)
        is_kept = self._request.group_id in self._state.groups
        response["endpoint_information_epoch"] = group.endpoint_epoch if is_kept else 0
        if configured.status is not None:
            self._statuses.append((configured.status, configured.detail))
        if group.shutdown_requested_by is not None:
            detail = (
                f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a "
                "shutdown for the entire application."
            )
            self._statuses.append((SHUTDOWN_APPLICATION, detail))
        lacking = [tag for tag in self._config.rack_aware_tags if tag not in new.client_tags]
        if lacking and self._request.is_version_1:
            detail = (
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(lacking)}]. Configure "
                "them via 'client.tag.<tagKey>' in your Streams config."
            )
            self._statuses.append((MISSING_CLIENT_TAGS, detail))
        response["status"] = [{"status_code": code, "status_detail": detail} for code, detail in self._statuses]
        response["creatable"] = configured.missing_internal_topics
        return response


def would_grow(group: StreamsGroup, member_id: str, instance_id: str | None) -> bool:
    """Whether a member that joins is one more; one that joins again has its place."""
    return member_id not in group.members and instance_id not in group.static_members


def _concerns_group(old: StreamsMember, new: StreamsMember) -> bool:
    """Whether a static member has changed in what assignments depend on: a restart alone moves no tasks."""
    return (old.topology_epoch, old.rack_id, old.client_tags, old.process_id) != (
        new.topology_epoch,
        new.rack_id,
        new.client_tags,
        new.process_id,
    )


def _offsets(rows: TaskOffsets) -> Offsets:
    """Raises INVALID_REQUEST."""
    _require(len(rows) <= TASKS_MAX, f"Offsets of {len(rows)} tasks are reported; a group has at most {TASKS_MAX}.")
    found: dict[str, dict[int, int]] = {}
    for name, number, offset in rows:
        of_one = found.setdefault(name, {})
        message = f"Task offsets contain a duplicate entry for subtopology {name} and partition {number}."
        _require(number not in of_one, message)
        of_one[number] = offset
    return found


def _tasks(rows: Sequence[tuple[str, Sequence[int]]]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for name, numbers in rows:
        found[name] = found.get(name, frozenset()) | frozenset(numbers)
    return found


def _require_unique(names: Iterable[str]) -> None:
    """Raises INVALID_REQUEST (in Kafka 4.3 it is UNKNOWN_SERVER_ERROR)."""
    listed = list(names)
    _require(len({*listed}) == len(listed), "A name is used twice.")


def _leave(state: GroupState, token: Token, request: StreamsHeartbeat) -> None:
    group = find(state, request.group_id)
    if request.shuts_down and group.shutdown_requested_by is None:
        group.shutdown_requested_by = request.member_id
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = static_members.known(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_STATIC:
        static_members.put_to_sleep(state, group, member)
    else:
        fence(state, group, member, f"{member.member_id} leaves")
    response: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "heartbeat_interval": 0,
        "acceptable_recovery_lag": -1,
        "task_offset_interval": 0,
        "status": (),
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "partitions_by_user_endpoint": None,
        "endpoint_information_epoch": 0,
        "creatable": {},
    }
    state.reply(token, response)
