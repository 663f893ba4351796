"""The pages of the HTTP port: /metrics, /health, /ready, and an index of them.

`ROUTES` declares what a client must be allowed to do for each of them. Probes have no login: /health and /ready say
everybody with a status whether the node works, and why it does not to who may describe the cluster.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clock import elapsed_s
from ottla.drivers.quorum.quorum_epochs import epochs_problem
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.text import OPENMETRICS_TYPE, TEXT_TYPE
from ottla.model import METADATA_TOPIC
from ottla.quorum.epochs import are_doubtful
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.server.http.callers import Caller
from ottla.server.http.metrics import Collector
from ottla.server.security.permissions import Needs, Open, cluster

if TYPE_CHECKING:
    from ottla.server.http.shown import ShownNode

LOOP_LOOK_SECONDS = 0.5
"""How often the lag of the event loop is measured."""

GZIP_STEP_BYTES = 65_536
"""Compressed without a look at other clients: about half a millisecond."""

GZIP_LEVEL = 1
"""Metrics repeat themselves so much that more effort gains little."""

DAMAGE_SHOWN_MAX = 100
"""Damaged partitions that /health describes; it counts all."""

Headers = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: Headers
    body: Sequence[bytes]
    closes: bool = False
    """Whether the connection ends with it."""

    @property
    def length(self) -> int:
        return sum(map(len, self.body))


def failed(status: int, why: str, *more: tuple[str, str]) -> Answer:
    return _json(status, {"status": HTTPStatus(status).phrase.lower(), "reason": why}, *more)


def _json(status: int, value: Mapping[str, Any], *more: tuple[str, str]) -> Answer:
    body = json.dumps(value, indent=1).encode() + b"\n"
    return Answer(status, [("Content-Type", "application/json"), *more], [body])


class Request(NamedTuple):
    """What a page is asked."""

    headers: Mapping[str, str]
    """Names in small letters."""
    caller: Caller


class Route(NamedTuple):
    """A page and what it needs."""

    path: str
    page: Callable[[Pages, Request], Awaitable[Answer]]
    needs: Needs


class Pages:
    """The pages of one node."""

    def __init__(self, node: ShownNode) -> None:
        self._node = node
        self._collector = Collector(node)
        self._one_at_a_time = asyncio.Lock()
        self._timer: asyncio.Handle | None = None
        self._paths = {each.path: each for each in ROUTES}

    def start(self) -> None:
        """Begin to measure how late the event loop is."""
        self._look(asyncio.get_running_loop().time())

    def _look(self, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._node.metrics.loop_lag_seconds.add(max(0.0, now_s - due_s))
        self._timer = loop.call_at(now_s + LOOP_LOOK_SECONDS, self._look, now_s + LOOP_LOOK_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def answer(self, method: str, path: str, headers: Mapping[str, str], caller: Caller) -> Answer:
        """`headers` have names in small letters."""
        route = self._paths.get(path)
        if route is None:
            return failed(404, f"there are {', '.join(self._paths)}")
        if method not in ("GET", "HEAD"):
            return failed(405, "GET or HEAD", ("Allow", "GET, HEAD"))
        refused = None if isinstance(route.needs, Open) else self._refusal(route, caller)
        return await route.page(self, Request(headers, caller)) if refused is None else refused

    def _refusal(self, route: Route, caller: Caller) -> Answer | None:
        """The answer to somebody who lacks what the page needs."""
        assert not isinstance(route.needs, Open)
        for need in route.needs:
            try:
                if self._is_allowed(caller, need.operation):
                    continue
            except KafkaError:
                return failed(503, "the node is starting: it does not know the ACLs yet", ("Retry-After", "1"))
            if not caller.is_known:
                return self.unauthorized("log in to see this page", self._challenges())
            how = "" if self._challenges() else "; clients log in with ottla.http.security.protocol=SASL_SSL"
            lacks = f"{caller.principal} needs {need.operation.name} on the cluster"
            return failed(403, f"{lacks}{how if caller.principal == 'User:ANONYMOUS' else ''}")
        return None

    def unauthorized(self, why: str, challenges: Sequence[str], *, closes: bool = False) -> Answer:
        """The answer to who is not logged in, or not with these credentials."""
        return failed(401, why, *(("WWW-Authenticate", each) for each in challenges))._replace(closes=closes)

    def _challenges(self) -> Sequence[str]:
        http = self._node.http
        return () if http is None or http.logins is None else http.logins.challenges

    def _is_allowed(self, caller: Caller, operation: Operation, *, log_denial: bool = True) -> bool:
        """Raises KafkaError while the ACLs are not known."""
        if not caller.is_known:
            return False
        authorizer = self._node.authorizer
        if authorizer is None:
            if self._node.config.authorizer_class_name:
                raise KafkaError(ErrorCode.coordinator_not_available, "the ACLs are not known yet")
            return True
        return authorizer.is_allowed(
            caller.principal, caller.host, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denial=log_denial
        )

    def _shown_to(self, caller: Caller, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a probe may know of a node's state: names of directories and partitions are for others."""
        try:
            if self._is_allowed(caller, Operation.DESCRIBE, log_denial=False):
                return found
        except KafkaError:
            pass
        reasons = ["who may describe the cluster sees the reasons here, after a login"] if found["reasons"] else []
        return {"status": found["status"], "reasons": reasons}

    async def index(self, asked: Request) -> Answer:
        links = "".join(f'<li><a href="{path}">{path}</a></li>\n' for path in self._paths if path != "/")
        title = f"Ottla, node {self._node.node_id}"
        page = (
            f'<!doctype html>\n<html lang="en"><title>{title}</title>\n<h1>{title}</h1>\n<ul>\n{links}</ul>\n</html>\n'
        )
        return Answer(200, [("Content-Type", "text/html; charset=utf-8")], [page.encode()])

    async def health(self, asked: Request) -> Answer:
        found = health(self._node)
        return _json(503 if found["reasons"] else 200, self._shown_to(asked.caller, found))

    async def ready(self, asked: Request) -> Answer:
        found = readiness(self._node)
        return _json(503 if found["reasons"] else 200, self._shown_to(asked.caller, found))

    async def metrics(self, asked: Request) -> Answer:
        headers = asked.headers
        openmetrics = wants_openmetrics(headers.get("accept", ""))
        zipped = wants_gzip(headers.get("accept-encoding", ""))
        async with self._one_at_a_time:  # many scrapers at once take no more of the loop than one
            began_s = elapsed_s()
            page = await self._collector.collect()
            page.add("ottla_ready", int(not readiness(self._node)["reasons"]))
            page.add("ottla_scrape_duration_seconds", round(elapsed_s() - began_s, 6))
            pieces = []
            for piece in page.write(openmetrics=openmetrics):
                pieces.append(piece)
                await asyncio.sleep(0)
            if zipped:
                pieces = await _compress(pieces)
        kind = [("Content-Type", OPENMETRICS_TYPE if openmetrics else TEXT_TYPE), ("Vary", "Accept, Accept-Encoding")]
        return Answer(200, kind + ([("Content-Encoding", "gzip")] if zipped else []), pieces)


PROBES: Final = Open("probes do not log in; reasons, directories and ids are told to who has DESCRIBE on the cluster")
ROUTES: Final = (
    Route("/", Pages.index, Open("links to the other pages, and the node's id")),
    Route("/metrics", Pages.metrics, (cluster(Operation.DESCRIBE),)),
    Route("/health", Pages.health, PROBES),
    Route("/ready", Pages.ready, PROBES),
)
"""A page without a declared permission cannot be written (CVE-2026-105931: "is logged in" is not enough)."""


async def _compress(pieces: Sequence[bytes]) -> list[bytes]:
    packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
    packed = []
    for piece in pieces:
        for position in range(0, len(piece), GZIP_STEP_BYTES):
            packed.append(packer.compress(piece[position : position + GZIP_STEP_BYTES]))
            await asyncio.sleep(0)
    packed.append(packer.flush())
    return [piece for piece in packed if piece]


def _weights(header: str) -> dict[str, float]:
    """`a;q=0.5, b` as {"a": 0.5, "b": 1.0}; a weight that is no number counts as 0."""
    found: dict[str, float] = {}
    for item in header.lower().split(","):
        name, *parameters = [part.strip() for part in item.split(";")]
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name:
            found[name] = max(weight, found.get(name, 0.0))
    return found


def wants_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics is asked for by name, and no less than the older text."""
    weights = _weights(accept)
    asked = weights.get("application/openmetrics-text", 0.0)
    return asked > 0 and asked >= weights.get("text/plain", 0.0)


def wants_gzip(accept_encoding: str) -> bool:
    weights = _weights(accept_encoding)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def health(node: ShownNode) -> dict[str, Any]:
    """Whether the node works at all. That it answers says that its event loop does.

    Damage makes it "damaged"; log directories that are full, or offline while others are not, make it "degraded". The
    rest is served, and a restart mends neither: that is no reason to be unhealthy, for which a node is killed.
    """
    failures = dict.fromkeys(node.logs.offline_dirs, "offline")
    reasons = []
    if failures and not node.logs.online_dirs:
        reasons.append("no log directory can be used")
    failure = node.metadata.quorum.failure
    if failure is not None:
        reasons.append(f"{failure.message}")
    damage, full, cut_off = damage_of(node), node.logs.full_dirs, node.metadata.cut_off
    lesser = "damaged" if damage else "degraded" if failures or full or cut_off else "healthy"
    return {
        "status": "unhealthy" if reasons else lesser,
        "reasons": reasons,
        **({} if cut_off is None else {"cut_off": cut_off}),
        "offline_directories": [*failures],
        "full_directories": [{"directory": directory, "free_bytes": free} for directory, free in full.items()],
        "damaged_partitions": len(damage),
        "damage": [{"partition": name, "problem": why} for name, why in list(damage.items())[:DAMAGE_SHOWN_MAX]],
    }


def damage_of(node: ShownNode) -> dict[str, str]:
    """Partitions that are not served, or whose groups are not, because of what is on disk, and those that are served
    although they are damaged; and why. The metadata log where its epochs are those of no election."""
    found = {str(key): str(log.error.message) for key, log in node.logs.offline_logs.items()}
    quorum = node.metadata.quorum
    if are_doubtful(quorum.core.epoch, quorum.core.last_epoch) and (why := epochs_problem(quorum.core)):
        found[f"{METADATA_TOPIC}-0"] = why
    if node.serving and node.config.is_broker:
        if "damaged_logs" in vars(node):  # made with the first records
            found |= {str(key): why for key, why in node.damaged_logs.damaged().items()}
        found |= {str(key): why for key, why in node.groups.damaged().items()}
    return found


def readiness(node: ShownNode) -> dict[str, Any]:
    """Whether clients are served, and what they would have to wait for."""
    reasons = list(health(node)["reasons"])
    if node.leaving:
        reasons.append("the node is stopping")
    elif not node.serving:
        doing = node.logs.progress
        reasons.append("the node is starting" if doing is None else f"the node is starting: {doing}")
    elif node.config.is_broker:
        loading = node.groups.loading()
        if loading:
            reasons.append(f"groups of {loading} partitions of __consumer_offsets are being loaded")
        registration = node.image.brokers.get(node.node_id)
        if registration is None or registration.fenced:
            reasons.append("the controller has fenced this broker")
    return {
        "status": "not ready" if reasons else "ready",
        "reasons": reasons,
        "node_id": node.node_id,
        "cluster_id": node.cluster_id if node.serving else None,
    }
