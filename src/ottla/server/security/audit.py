"""The audit log of a node: what is heard of logins, decisions and changes, and how it becomes events.

A node without `ottla.audit.directory` has neither this module nor an `Audit`.

Changes of the metadata are heard where they are decided, by the active controller (`audited_changes.py`), with the
client that an Envelope names. Everything else is heard by the node that the client asked. What repeats itself within
REPEAT_S is written once, and then once more with the number of times; changes are written one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.changes import Change, Resource
from ottla.drivers.audit.audit_log import AuditLog, AuditSettings, Event, Expand
from ottla.drivers.controller.controller_channel import LocalControllerChannel, Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.server.api import OF_BROKERS, OF_CONTROLLERS
from ottla.server.security.audited_changes import OTHERS, Watched, event_of, shown, text_of
from ottla.server.security.authorization import ERRORS
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.drivers.audit.audit_topic import AuditTopic
    from ottla.metrics.text import Exposition
    from ottla.security.authorizer import Question, Verdict
    from ottla.server.ports import Asking, AuditedNode
    from ottla.server.security.permissions import Need
    from ottla.tls_handshakes import Failure

REPEAT_S: Final = 10.0
REPEATED_MAX: Final = 5_000
"""Different events that are counted at a time, some megabytes."""

CLAIMED_LENGTH_MAX: Final = 200
"""Characters of a name that a client claims."""

_LEFT_OUT: Final = frozenset(
    {
        *ERRORS.values(), ErrorCode.not_coordinator, ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress, ErrorCode.not_leader_or_follower,
    }
)  # fmt: skip
"""Errors of changes that are no events: the authorizer tells of denials, and the client asks another node."""

_DATA: Final = frozenset({Operation.READ, Operation.WRITE})
_KINDS_OF_DATA: Final = frozenset({ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID})


class Audit:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: AuditedNode, log: AuditLog, classes: Sequence[str]) -> None:
        self.log = log
        self.node_id = node.node_id
        self.classes = frozenset(classes)
        self.hears_of_data = "data" in classes
        self._node = node
        self._repeated: dict[tuple[Any, ...], list[Any]] = {}
        """What was written a short while ago, and how often it has come again."""
        self._timer: asyncio.Handle | None = None
        self.topic: AuditTopic | None = None
        """Where the lines are shipped to; None with `ottla.audit.topic` empty."""

    async def start(self, make_topic: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`make_topic` creates the topic to which the lines are shipped, if there is to be one. Raises OttlaError where
        nothing can be written."""
        await self.log.start()
        self._put("Started", version=VERSION, events=sorted(self.classes))
        name = self._node.config.ottla_audit_topic
        if name:
            from ottla.drivers.audit.audit_topic import AuditTopic

            self.topic = AuditTopic(self._node, self.log.directory, name, make_topic)
            self.log.on_lines = self.topic.written
            self.topic.start()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._say_repeated()
        self._put("Stopped")
        if self.topic is not None:
            await self.topic.stop()
        await self.log.stop()

    def _put(self, event: str, **more: Any) -> None:
        self.log.put({"class": "audit", "event": event, "node": self.node_id, **more}, is_change=True)

    # Logins.

    def logged_in(self, principal: str, host: str, listener: str, mechanism: str, *, again: bool = False) -> None:
        """A client is known now; `again`: it was before, and its session goes on."""
        self._heard(
            "authentication",
            "Reauthenticated" if again else "LoggedIn",
            principal=principal,
            host=host,
            listener=listener,
            mechanism=mechanism,
            allowed=True,
        )

    def login_failed(
        self, host: str, listener: str, mechanism: str | None, reason: str, claimed: str | None = None
    ) -> None:
        """`claimed` is the name that the client gave, which proves nothing."""
        self._heard(
            "authentication",
            "LoginFailed",
            claimed=None if claimed is None else claimed[:CLAIMED_LENGTH_MAX],
            host=host,
            listener=listener,
            mechanism=mechanism,
            allowed=False,
            reason=reason,
        )

    def handshake_failed(self, listener: str, failure: Failure) -> None:
        """A TLS handshake; a client without a good certificate is one of the reasons."""
        self.login_failed(failure.client_host, listener, "SSL", failure.reason)

    # Decisions of the authorizer.

    def decided(self, question: Question, verdict: Verdict, depends: bool) -> None:
        """`depends` says whether a request depends on it, rather than a list that is filtered."""
        if not depends:
            return
        if verdict.allowed:
            is_own = self.topic is not None and question.name == self._node.config.ottla_audit_topic
            if self.hears_of_data and not is_own and question.operation in _DATA and question.kind in _KINDS_OF_DATA:
                self._decision("data", "AccessAllowed", question, verdict)
        else:
            self._decision("denials", "AccessDenied", question, verdict)

    def _decision(self, kind: str, event: str, question: Question, verdict: Verdict) -> None:
        self._heard(
            kind,
            event,
            principal=question.principal,
            host=question.host,
            operation=question.operation.name,
            resource=text_of(Resource(question.kind.name, question.name)),
            allowed=verdict.allowed,
            rule=verdict.rule,
        )

    # Changes.

    def watch(self, api_key: int, request: Mapping[str, Any], requester: Requester) -> Watched | None:
        """A request to the controller of this process; None for what is nobody's administration."""
        if api_key in OTHERS or "administration" not in self.classes:
            return None
        return Watched(self, api_key, request, requester)

    def changed(self, events: Expand) -> None:
        self.log.put(events, is_change=True)

    def administered(
        self,
        context: Asking,
        kind: str,
        name: str,
        error: int = 0,
        changes: Sequence[tuple[str, Any, Any]] = (),
    ) -> None:
        """A client has changed something that no controller decides about: a group, records, a log's directory. Each
        change is what changed, with the values before and after. `_LEFT_OUT` errors give no event."""
        if "administration" not in self.classes or error in _LEFT_OUT:
            return
        table = OF_BROKERS if context.api_key in OF_BROKERS.table else OF_CONTROLLERS
        needs: tuple[Need, ...] = tuple(each for each in table.load(context.api_key).needs if not isinstance(each, str))
        resource = Resource(kind, name)
        found: Event = {
            "class": "administration",
            "event": event_of(context.api_key),
            "principal": context.principal,
            "host": context.client_host,
            "client_id": context.client_id,
            "resource": text_of(resource),
            "allowed": True,
            "rule": self.rule(context.principal, context.client_host, needs, resource),
            "error": ErrorCode(error).name.upper() if error else None,
            "changes": [shown(Change(resource, *each)) for each in changes] or None,
        }
        self.log.put(found, is_change=True)

    def rule(self, principal: str, host: str, needs: Sequence[Need], resource: Resource) -> str | None:
        """By which rule the principal may do it; None where that is not known any more."""
        authorizer = self._node.authorizer
        if authorizer is None:
            return "NoAuthorizer"
        asked = [
            (kind, operation) for need in needs for operation, kind in ((need.operation, need.kind), *need.instead)
        ]
        for kind, operation in asked:
            if kind.name == resource.kind:
                name = resource.name
            elif kind == ResourceType.CLUSTER:
                name = CLUSTER_NAME
            else:
                continue
            try:
                verdict = authorizer.verdict(principal, host, operation, kind, name)
            except KafkaError:
                return None
            if verdict.allowed:
                return verdict.rule
        return None

    # What repeats itself.

    def _heard(self, kind: str, event: str, **found: Any) -> None:
        if kind not in self.classes:
            return
        key = (event, *found.values())
        known = self._repeated.get(key)
        if known is not None:
            known[0] += 1
            return
        if len(self._repeated) >= REPEATED_MAX:
            self._say_repeated()
        told = {"class": kind, "event": event, **found}
        self._repeated[key] = [0, told]
        self.log.put(told)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPEAT_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self._say_repeated()

    def _say_repeated(self) -> None:
        repeated, self._repeated = self._repeated, {}
        for times, event in repeated.values():
            if times:
                self.log.put({**event, "times": times})

    def add_metrics(self, page: Exposition) -> None:
        page.add("ottla_audit_events_total", self.log.head.seq)
        page.add("ottla_audit_events_lost_total", self.log.lost)
        page.add("ottla_audit_write_failures_total", self.log.failed_writes)
        if self.topic is not None:
            page.add("ottla_audit_topic_lag_events", max(0, self.log.written - self.topic.shipped))


async def begin_audit(
    node: AuditedNode,
    closers: list[Callable[[], Coroutine[Any, Any, None]]],
    make_topic: Callable[[], Coroutine[Any, Any, None]],
) -> Audit:
    """Hear what is to be heard from now on, until the last of `closers`; `make_topic` as in `Audit.start`. Raises
    OttlaError."""
    config = node.config
    settings = AuditSettings(
        config.ottla_audit_directory,
        node.node_id,
        config.ottla_audit_file_bytes,
        config.ottla_audit_files_max,
        config.ottla_audit_flush_interval_ms / 1000,
    )
    audit = Audit(node, AuditLog(node.fs, node.clock, settings), config.ottla_audit_events)
    closers.append(audit.stop)
    await audit.start(make_topic)
    if isinstance(node.channel, LocalControllerChannel):
        node.channel.watch = audit.watch
    if node.tls is not None and "authentication" in audit.classes:
        node.tls.on_failed = audit.handshake_failed
    return audit
