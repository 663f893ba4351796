"""The authorizer of a node: made from its settings, fed by its metadata image, its decisions logged and counted.

A node without `authorizer.class.name` has neither this module nor an authorizer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from ottla.clock import elapsed_s
from ottla.config import authorizer as settings
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.features import supports_networks_in_acls
from ottla.security.authorizer import Authorizer, Question, Verdict
from ottla.server.security.authorization import rules_changed

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.server.api import RequestContext
    from ottla.server.listeners.listener import Listener
    from ottla.server.ports import Controlled, Listening, WorkingNode
    from ottla.server.security.audit import Audit

    class AuthorizedNode(Listening, WorkingNode, Protocol):
        """A node, for its authorizer."""

        @property
        def audit(self) -> Audit | None: ...
        @property
        def listeners(self) -> list[Listener]: ...


_LOG = logging.getLogger("ottla.authorizer")

LINES_MAX: Final = 20
"""Denials in the log in each PERIOD_S: a client that may not do something asks again at once."""
PERIOD_S: Final = 10.0
SAME_S: Final = 60.0
"""How long the same denial is not logged again."""
REMEMBERED_MAX: Final = 5_000
"""Denials that are remembered for it, about a megabyte."""


class DecisionLog:
    """Logs denials at INFO and permissions at DEBUG. Look-ups that only filter a list are not logged."""

    def __init__(self, authorizer: Authorizer, audit: Audit | None = None) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._always = audit is not None and audit.hears_of_data
        self._since_s = 0.0
        self._lines = 0
        self._left_out = 0
        self._logged: dict[Question, float] = {}
        """When a denial was last logged."""

    def heard(self, question: Question, verdict: Verdict, depends: bool) -> None:
        """A decision; `depends` says whether a request depends on it."""
        if not depends:
            return
        debug = _LOG.isEnabledFor(logging.DEBUG)
        self._authorizer.hears_of_all = debug or self._always
        if self._audit is not None:
            self._audit.decided(question, verdict, depends)
        if verdict.allowed:
            if debug:
                self._log(logging.DEBUG, "allowed", question, verdict)
            return
        if debug:
            self._log(logging.INFO, "denied", question, verdict)
        elif _LOG.isEnabledFor(logging.INFO):
            self._log_some(question, verdict, elapsed_s())

    def _log_some(self, question: Question, verdict: Verdict, now_s: float) -> None:
        if now_s - self._since_s >= PERIOD_S:
            self._since_s, self._lines = now_s, 0
        last_s = self._logged.get(question)
        if self._lines >= LINES_MAX or (last_s is not None and now_s - last_s < SAME_S):
            self._left_out += 1
            return
        if len(self._logged) >= REMEMBERED_MAX:
            self._logged.clear()
        self._logged[question] = now_s
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        self._log(logging.INFO, "denied", question, verdict, left_out)

    def _log(self, level: int, event: str, question: Question, verdict: Verdict, left_out: int = 0) -> None:
        found = fields(
            principal=question.principal,
            operation=question.operation.name,
            host=question.host,
            resource=f"{question.kind.name}:LITERAL:{question.name}",
            rule=verdict.rule,
            denials_left_out=left_out or None,
        )
        _LOG.log(level, event, extra=found)


def authorize(node: AuthorizedNode) -> Authorizer:
    """The authorizer of a node whose metadata is open, which from now on follows it. It is ready once the image has
    what the controllers had committed when one of them first answered."""
    static = node.config.static
    authorizer = Authorizer(settings.super_users(static), settings.allows_everyone(static))
    authorizer.on_decision = DecisionLog(authorizer, node.audit).heard
    authorizer.hears_of_all = _LOG.isEnabledFor(logging.DEBUG) or (node.audit is not None and node.audit.hears_of_data)

    def follow(delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.acls:
            authorizer.apply(delta.acls, delta.base.acls)
            rules_changed(node)
        networks = supports_networks_in_acls(image.features)
        if networks != authorizer.networks:
            authorizer.networks = networks
            authorizer.changed()
            rules_changed(node)

    def stage(delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        if delta.acls:
            yield from authorizer.staging(delta.acls, delta.base.acls)

    node.metadata.publisher.subscribe(follow, before=stage)
    node.spawn(_load(node, authorizer))
    return authorizer


async def _load(node: AuthorizedNode, authorizer: Authorizer) -> None:
    """Wait for the ACLs, then serve where super users alone were not to be served without them."""
    await node.metadata.publisher.wait_published(await node.metadata.quorum.caught_up() - 1)
    authorizer.ready = True
    _LOG.info("ACLs loaded", extra=fields(acls=authorizer.acl_count))
    early = _early(node)
    for listener in node.listeners:
        if listener.name in node.controller_endpoints and listener.name not in early:
            await listener.accept()


def early_listeners(node: AuthorizedNode) -> Iterable[Listener]:
    """The listeners of the controller that serve before the ACLs are loaded."""
    early = _early(node)
    return [listener for listener in node.listeners if listener.name in early]


def _early(node: Controlled) -> frozenset[str]:
    return settings.early_listeners(node.config, frozenset(node.controller_endpoints))


def check_enabled(context: RequestContext, text: str = "No Authorizer is configured.") -> None:
    """For the APIs of ACLs themselves. Raises SECURITY_DISABLED without an authorizer."""
    if context.node.authorizer is None:
        raise KafkaError(ErrorCode.security_disabled, text)
