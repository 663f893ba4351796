"""Simulated users and their administrator, who changes what they log in with and what they may do.

A request is never answered by rules other than those of the node's own image: each answer is compared with a plain
reading of the images that the node had from the moment the request was sent until its answer came.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.security.acls import Operation, PatternType, Permission, ResourceType
from ottla.security.sasl import scram
from ottla.security.sasl.client import PlainClient, ScramClient
from ottla.simulation.checks.history import History
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.wire import Disconnected, Wire, leader_of
from ottla.simulation.world import EPOCH_MS, Machine, World

LOGIN_PORT = 9094
PROBED = "probed"
"""The topic that ACLs are about."""
USERS = ("ann", "bob", "cas")
ROOT, ROOT_PASSWORD = "root", "root-secret"
MECHANISM = scram.SHA_256
SALT = b"a salt of simulated users"
OLD_PASSWORDS = 3
"""So many passwords before the newest one are tried."""

SURE_S = 0.9
"""A change that was answered sooner was not asked for twice, and its broker has seen it: it waits a second for what it
has forwarded to come back."""

_AUTHENTICATION_FAILED = ErrorCode.sasl_authentication_failed
_DENIED = ErrorCode.topic_authorization_failed
_IMPLY_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)


class Rule(NamedTuple):
    """An ACL of the simulation, on topics and from any host."""

    user: str
    name: str
    pattern: PatternType
    operation: Operation
    permission: Permission


RULES = tuple(
    Rule(user, name, pattern, operation, permission)
    for user in USERS
    for name, pattern in ((PROBED, PatternType.LITERAL), (PROBED[:4], PatternType.PREFIXED), ("*", PatternType.LITERAL))
    for operation in (Operation.WRITE, Operation.DESCRIBE)
    for permission in (Permission.ALLOW, Permission.ALLOW, Permission.DENY)
)


def may(image: MetadataImage, user: str, operation: Operation) -> bool:
    """A plain reading of the ACLs on PROBED: what forbids comes first, nothing is allowed that no ACL allows."""
    implied = _IMPLY_DESCRIBE if operation is Operation.DESCRIBE else (operation,)
    allowed = False
    for acl in image.acls.values():
        if acl.resource_type != ResourceType.TOPIC or acl.principal != f"User:{user}":
            continue
        if acl.pattern_type == PatternType.PREFIXED:
            covers = PROBED.startswith(acl.resource_name)
        else:
            covers = acl.resource_name in (PROBED, "*")
        if covers and acl.permission_type == Permission.DENY and acl.operation in (operation, Operation.ALL):
            return False
        if covers and acl.permission_type == Permission.ALLOW and acl.operation in (*implied, Operation.ALL):
            allowed = True
    return allowed


@lru_cache(1000)
def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    """This takes milliseconds by design, and the same users log in again and again."""
    return scram.salted_password(MECHANISM, password, salt, iterations)


class _UserClient(ScramClient):
    def _salted(self, salt: bytes, iterations: int) -> bytes:
        return salted_password(self._password, salt, iterations)


@lru_cache(1000)
def credential_of(user: str, number: int) -> tuple[bytes, scram.Credential]:
    """Salted password and credential of a user's password."""
    salted = salted_password(password_of(user, number), SALT, scram.ITERATIONS_MIN)
    return salted, scram.credential(MECHANISM, salted, SALT, scram.ITERATIONS_MIN)


def password_of(user: str, number: int) -> str:
    return f"{user}-password-{number}"


def has_password(image: MetadataImage, user: str, number: int) -> bool:
    found = image.scram_credentials.get((user, MECHANISM.number))
    return found is not None and found.stored_key == credential_of(user, number)[1].stored_key


class Images:
    """The images that each node has had, as far back as an answer can be."""

    def __init__(self) -> None:
        self._seen: dict[str, list[MetadataImage]] = {}

    def watch(self, machine: Machine) -> None:
        if machine.node is None:
            return
        seen, image = self._seen.setdefault(machine.name, []), machine.node.image
        if not seen or seen[-1] is not image:
            seen.append(image)

    def mark(self, host: str) -> int:
        """To be given to `since`: now."""
        return max(0, len(self._seen.get(host, ())) - 1)

    def since(self, host: str, mark: int) -> list[MetadataImage]:
        return self._seen.get(host, [])[mark:]


class Token(NamedTuple):
    token_id: str
    owner: str
    password: str


class Secrets:
    """What the administrator has told others, and what must be so by what it was answered."""

    def __init__(self) -> None:
        self.images = Images()
        self.newest: dict[str, int] = dict.fromkeys(USERS, 0)
        """The number of each user's newest password, whether it was accepted or not."""
        self.passwords: dict[str, int | None] = dict.fromkeys(USERS, 0)
        """The number of the password that each has, 0 for none; None where nobody can know: an earlier change that was
        not answered may still come, since brokers ask controllers again (`RemoteControllerChannel`)."""
        self.rules: dict[Rule, bool | None] = dict.fromkeys(RULES, False)
        """Whether it is there; None where nobody can know."""
        self.tokens: dict[Token, bool | None] = {}


class Administrator(Client):
    """Changes users, ACLs and tokens, and holds what it is told against what is so."""

    port = LOGIN_PORT

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], secrets: Secrets) -> None:
        self.secrets = secrets
        super().__init__(world, history, name, servers)

    async def session(self, wire: Wire) -> None:
        await log_in(wire, "PLAIN", PlainClient(ROOT, ROOT_PASSWORD))
        while not self.stopping:
            what = self.random.choice(
                (self._rule, self._rule, self._rule, self._password, self._password, self._token, self._no_token)
            )
            await what(wire)
            await self.pause(0.15)

    async def _rule(self, wire: Wire) -> None:
        rule, rules = self.random.choice(RULES), self.secrets.rules
        is_doubtful = rules[rule] is None
        there = self.random.random() < 0.6 if is_doubtful else not rules[rule]
        rules[rule] = None
        row = {
            "resource_type": ResourceType.TOPIC,
            "resource_name": rule.name,
            "resource_pattern_type": rule.pattern,
            "principal": f"User:{rule.user}",
            "host": "*",
            "operation": rule.operation,
            "permission_type": rule.permission,
        }
        if there:
            ask = lambda: wire.ask(ApiKey.CREATE_ACLS, 3, {"creations": [row]})  # noqa: E731
        else:
            wanted = {
                "resource_type_filter": row["resource_type"],
                "resource_name_filter": row["resource_name"],
                "pattern_type_filter": row["resource_pattern_type"],
                "principal_filter": row["principal"],
                "host_filter": "*",
                "operation": row["operation"],
                "permission_type": row["permission_type"],
            }
            ask = lambda: wire.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted]})  # noqa: E731
        what = f"{'add' if there else 'remove'} {rule}"
        rows = "results" if there else "filter_results"
        row_of = lambda answer: answer[rows][0]  # noqa: E731
        if await self._changed(what, ask, row_of, lambda image: is_doubtful or has_rule(image, rule) == there):
            rules[rule] = None if is_doubtful else there

    async def _password(self, wire: Wire) -> None:
        user, passwords = self.random.choice(USERS), self.secrets.passwords
        known = passwords[user]
        passwords[user] = None
        if known and self.random.random() < 0.25:
            values: dict[str, Any] = {
                "deletions": [{"name": user, "mechanism": MECHANISM.number}],
                "upsertions": [],
            }
            number = 0
        else:
            number = self.secrets.newest[user] = self.secrets.newest[user] + 1
            row = {
                "name": user,
                "mechanism": MECHANISM.number,
                "iterations": scram.ITERATIONS_MIN,
                "salt": SALT,
                "salted_password": credential_of(user, number)[0],
            }
            values = {"deletions": [], "upsertions": [row]}

        def is_so(image: MetadataImage) -> bool:
            if known is None:
                return True
            if number:
                return has_password(image, user, number)
            return (user, MECHANISM.number) not in image.scram_credentials

        ask = lambda: wire.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, values)  # noqa: E731
        if await self._changed(f"password {number} of {user}", ask, lambda answer: answer["results"][0], is_so):
            passwords[user] = None if known is None else number

    async def _token(self, wire: Wire) -> None:
        """A token of somebody else, or of its own, which it gives away."""
        owner = self.random.choice((*USERS, ROOT, ROOT, ROOT))
        values: dict[str, Any] = {
            "owner_principal_type": None if owner == ROOT else "User",
            "renewers": [],
            "max_lifetime": -1,
            "owner_principal_name": None if owner == ROOT else owner,
        }
        made: dict[str, Any] = {}

        def row(answer: Mapping[str, Any]) -> Mapping[str, Any]:
            made.update(answer)
            return answer

        def is_so(image: MetadataImage) -> bool:
            found = image.delegation_tokens.get(made["token_id"])
            return found is not None and (found.owner, found.requester) == (f"User:{owner}", f"User:{ROOT}")

        ask = lambda: wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, values)  # noqa: E731
        is_sure = await self._changed(f"token of {owner}", ask, row, is_so)
        if made.get("token_id"):
            token = Token(made["token_id"], owner, base64.b64encode(made["hmac"]).decode())
            self.secrets.tokens[token] = True if is_sure else None

    async def _no_token(self, wire: Wire) -> None:
        """Only its own: nobody expires the tokens of others."""
        live = [token for token, there in self.secrets.tokens.items() if there and token.owner == ROOT]
        if not live:
            return
        token = self.random.choice(live)
        self.secrets.tokens[token] = None
        values = {"hmac": base64.b64decode(token.password), "expiry_time_period": -1}
        is_gone = await self._changed(
            f"no token {token.token_id}",
            lambda: wire.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, values),
            lambda answer: answer,
            lambda image: token.token_id not in image.delegation_tokens,
        )
        if is_gone:
            self.secrets.tokens[token] = False

    async def _changed(
        self,
        what: str,
        ask: Callable[[], Any],
        row_of: Callable[[Any], Mapping[str, Any]],
        is_so: Callable[[MetadataImage], bool],
    ) -> bool:
        """Whether a change is known to be so. Its broker, which answered, has to have it in its image."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        row = row_of(await ask())
        took_s = loop.time() - began_s
        if row["error_code"]:
            code = ErrorCode(row["error_code"])
            self.note(f"{what}: {code.name}")
            self.world.counts[f"change refused {code.name}"] += 1
            if code is ErrorCode.unknown_server_error:
                self.world.violated(f"{self.name}: {what} was answered {code.name}")
            return False
        self.note(what)
        self.world.counts["security changes"] += 1
        if took_s > SURE_S:
            return False
        node = self.world.machines[self.host].node
        if node is not None and not is_so(node.image):
            self.world.violated(
                f"a change is seen by who asks its broker next: {self.host} answered {what} and has it not"
            )
        return True


class User(Client):
    """Logs in with what it was given, new or old, and tries what it may do."""

    port = LOGIN_PORT

    def __init__(
        self, world: World, history: History, name: str, servers: Sequence[str], secrets: Secrets, user: str
    ) -> None:
        self.secrets = secrets
        self.user = user
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        if self.random.random() < 0.5:
            return self.random.choice(self.servers)
        return await leader_of(self.network, self.servers, self.random, (PROBED, 0))

    async def session(self, wire: Wire) -> None:
        tokens = list(self.secrets.tokens)
        if tokens and self.random.random() < 0.4:
            who = await self.by_token(wire, self.random.choice(tokens[-6:]))
        else:
            newest = self.secrets.newest[self.user]
            who = await self.by_password(wire, max(0, newest - self.random.randrange(OLD_PASSWORDS)))
        if who is None or who == ROOT:
            return
        for _ in range(self.random.randint(3, 10)):
            if self.stopping:
                return
            probe = self.random.choice((self._metadata, self._produce, self._produce))
            await probe(wire, who)
            await self.pause(0.1)

    async def by_password(self, wire: Wire, number: int) -> str | None:
        client = _UserClient(MECHANISM, self.user, password_of(self.user, number), self.random.randbytes(17))
        return await self._log_in(
            wire, client, self.user, f"password {number}", lambda image: has_password(image, self.user, number)
        )

    async def by_token(self, wire: Wire, token: Token) -> str | None:
        client = _UserClient(
            MECHANISM, token.token_id, token.password, self.random.randbytes(17), extensions={"tokenauth": "true"}
        )
        return await self._log_in(
            wire,
            client,
            token.owner,
            f"token {token.token_id}",
            lambda image: token.token_id in image.delegation_tokens,
        )

    async def _log_in(
        self, wire: Wire, client: ScramClient, who: str, how: str, is_right: Callable[[MetadataImage], bool]
    ) -> str | None:
        """The user's name, None where it was refused."""
        mark = self.secrets.images.mark(wire.host)
        is_in = await log_in(wire, MECHANISM.name, client)
        self._compare(wire.host, mark, is_in, f"login of {who} by {how}", is_right)
        self.world.counts["logins" if is_in else "logins refused"] += 1
        self.world.counts["logins by tokens"] += is_in and how.startswith("token")
        return who if is_in else None

    async def _metadata(self, wire: Wire, who: str) -> None:
        mark = self.secrets.images.mark(wire.host)
        asked = {"topics": ({"name": PROBED, "topic_id": None},), "allow_auto_topic_creation": False}
        (row,) = (await wire.ask(ApiKey.METADATA, 9, asked))["topics"]
        self._decided(wire.host, mark, row["error_code"], who, Operation.DESCRIBE)

    async def _produce(self, wire: Wire, who: str) -> None:
        mark = self.secrets.images.mark(wire.host)
        data = build_batch([SimpleRecord(EPOCH_MS, None, who.encode())])
        rows = [{"name": PROBED, "partition_data": [{"index": 0, "records": data}]}]
        values = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": rows}
        answer = await wire.ask(ApiKey.PRODUCE, 9, values)
        error = answer["responses"][0]["partition_responses"][0]["error_code"]
        self._decided(wire.host, mark, error, who, Operation.WRITE)

    def _decided(self, host: str, mark: int, error: int, who: str, operation: Operation) -> None:
        is_allowed = error != _DENIED
        self.world.counts["allowed" if is_allowed else "denied"] += 1
        self._compare(host, mark, is_allowed, f"{operation.name} by {who}", lambda image: may(image, who, operation))

    def _compare(self, host: str, mark: int, found: bool, what: str, rules: Callable[[MetadataImage], bool]) -> None:
        images = self.secrets.images.since(host, mark)
        if found not in {rules(each) for each in images}:
            offsets = [each.offset for each in images]
            self.world.violated(
                f"a node goes by its own image: {host} {'allowed' if found else 'refused'} the {what}, and its images "
                f"{offsets} say otherwise"
            )


async def log_in(wire: Wire, mechanism: str, client: PlainClient | ScramClient) -> bool:
    """Whether the broker lets the client in. Raises Disconnected."""
    answer = await wire.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
    if answer["error_code"]:
        raise Disconnected(f"handshake: {ErrorCode(answer['error_code']).name}")
    message: bytes | None = client.first()
    while message is not None:
        answer = await wire.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        if answer["error_code"] == _AUTHENTICATION_FAILED:
            return False
        if answer["error_code"]:
            raise Disconnected(f"login: {ErrorCode(answer['error_code']).name}")
        message = client.step(answer["auth_bytes"])
    return True


def has_rule(image: MetadataImage, rule: Rule) -> bool:
    return any(
        (acl.principal, acl.resource_name, acl.pattern_type, acl.operation, acl.permission_type)
        == (f"User:{rule.user}", rule.name, rule.pattern, rule.operation, rule.permission)
        for acl in image.acls.values()
    )
