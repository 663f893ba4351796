"""A run of changing security: users, ACLs and delegation tokens change while controllers fail over.

A request is never answered by rules other than those of its node's image, which has the sender's last acknowledged
change; nothing that was acknowledged is lost, and what was removed does not come back.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial

from ottla.metadata.image import MetadataImage
from ottla.server.listeners import sasl_listeners
from ottla.simulation.checks.history import ACKS_ALL, History, Key
from ottla.simulation.clients.clients import Client, Producer
from ottla.simulation.clients.groups import TOPIC
from ottla.simulation.clients.security_clients import (
    LOGIN_PORT,
    PROBED,
    ROOT,
    ROOT_PASSWORD,
    USERS,
    Administrator,
    Secrets,
    Token,
    User,
    has_password,
    has_rule,
)
from ottla.simulation.clients.wire import Wire
from ottla.simulation.faults.aimed_faults import AimedNemesis
from ottla.simulation.runs.quorum import AimedRun, Plan
from ottla.simulation.world import Machine

SECURITY = "security"

SEEN_SECONDS_MAX = 20.0
"""With all faults healed every broker has every change within this."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = "listener.name.login."

ALWAYS = ("security changes", "logins", "logins refused", "logins by tokens", "allowed", "denied", "secrets checked",
          "fault")  # fmt: skip


class SecurityNemesis(AimedNemesis):
    """Aims at the active controller, and at brokers that then are far behind."""

    what = "security"

    def aim(self) -> Key:
        return PROBED, 0

    async def _of_leader(self) -> None:
        leaders = [each for each in self.voters if each.node is not None and each.node.metadata.quorum.is_leader]
        if not leaders or self.random.random() < 0.3:
            await self._left_behind()
            return
        await self._lose(leaders[-1], "which is the active controller")

    async def _left_behind(self) -> None:
        """A broker that hears nothing of the controllers, but of clients."""
        self.machine = self.random.choice(self.brokers)
        self._says(f"of {self.what}: {self.machine.name} is left behind")
        await self._isolated()


class SecurityRun(AimedRun):
    nemesis = SecurityNemesis
    topics = (TOPIC, PROBED)

    def __init__(self, seed: int, kind: str = SECURITY, plan: Plan | None = None) -> None:
        self.secrets = Secrets()
        super().__init__(seed, kind, plan, fsynced=True)

    def make_plan(self) -> Plan:
        random = self.random
        brokers = random.choice((1, 2, 3, 3, 3))
        is_combined = random.random() < 0.5
        controllers = random.choice((1, 3, 3, 3))
        if is_combined:
            controllers = min(brokers - 1 + brokers % 2, controllers)
        replicas = min(brokers, 3)
        return Plan(
            controllers,
            brokers,
            is_combined,
            replicas,
            1,
            ACKS_ALL,
            is_unclean=False,
            seconds=random.uniform(*self.lasts_s),
        )

    def more_settings(self) -> dict[str, str]:
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ROOT}",
            "delegation.token.secret.key": "the secret of simulated nodes",
            # Snapshots follow each other, and the log before them goes: who was away has to load one.
            "metadata.log.max.record.bytes.between.snapshots": "1500",
            "metadata.max.retention.bytes": "1",
        }

    def make_machines(self) -> None:
        super().make_machines()
        for name in self.servers:
            settings = self.world.machines[name].settings
            settings["listeners"] += f",LOGIN://{name}:{LOGIN_PORT}"
            settings |= {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                f"{LOGIN}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                f"{LOGIN}plain.sasl.jaas.config": f'{_PLAIN} required user_{ROOT}="{ROOT_PASSWORD}";',
            }

    def make_history(self) -> History:
        history = super().make_history()
        watch, images = self.world.watch, self.secrets.images

        def both(machine: Machine) -> None:
            watch(machine)
            images.watch(machine)

        self.world.watch = both
        return history

    def make_clients(self) -> list[Client]:
        world, history, servers = self.world, self.history, self.servers
        return [
            Administrator(world, history, ROOT, servers, self.secrets),
            *(
                User(world, history, f"{user}{number}", servers, self.secrets, user)
                for user in USERS
                for number in range(2)
            ),
            Producer(world, history, "p-idem", servers, (TOPIC, 0), idempotent=True, in_flight=2),
        ]

    async def main(self) -> None:
        before = sasl_listeners.random_bytes
        sasl_listeners.random_bytes = self.world.random("nonces").randbytes
        try:
            await super().main()
        finally:
            sasl_listeners.random_bytes = before

    async def check(self) -> None:
        await self.settle()
        deadline_s = self.world.time.now_s + SEEN_SECONDS_MAX
        while problems := [each for name in self.servers for each in self._problems(name)]:
            if self.world.time.now_s > deadline_s:
                self.world.violated(f"nothing acknowledged is lost, nothing removed comes back: {'; '.join(problems)}")
            await asyncio.sleep(0.2)
        for token, there in self.secrets.tokens.items():
            gets_in = partial(self._gets_in, token)
            if there is not None and await self._patiently(gets_in) != there:
                how = "fails" if there else "works"
                self.world.violated(f"nothing removed comes back: token {token.token_id} {how}")
            self.world.counts["secrets checked"] += 1

    def _problems(self, name: str) -> list[str]:
        node = self.world.machines[name].node
        if node is None:
            return [f"{name} does not run"]
        image, secrets = node.image, self.secrets
        found = [
            f"{name} has {'not ' * there}{rule}"
            for rule, there in secrets.rules.items()
            if there is not None and has_rule(image, rule) != there
        ]
        found += [
            f"{name} has another password of {user} than number {number}"
            for user, number in secrets.passwords.items()
            if number is not None and not _is_password(image, user, number)
        ]
        found += [
            f"{name} has {'not ' * there}token {token.token_id}"
            for token, there in secrets.tokens.items()
            if there is not None and (token.token_id in image.delegation_tokens) != there
        ]
        return found

    async def _gets_in(self, token: Token, wire: Wire) -> bool:
        """Whether a token logs in at the broker that `wire` leads to."""
        user = User(self.world, self.history, "asker", self.servers, self.secrets, USERS[0])
        user.stopping = True
        with closing(await Wire.connect(self._network("asker"), wire.host, LOGIN_PORT)) as opened:
            return await user.by_token(opened, token) is not None

    def missed(self) -> list[str]:
        counts = self.counts()
        missed = [f"the run met no {each}" for each in ALWAYS if not counts[each]]
        if self.plan.controllers > 1 and counts["quorum leaders"] < 1:
            missed.append("the run met no election of the quorum")
        return missed


def _is_password(image: MetadataImage, user: str, number: int) -> bool:
    if number:
        return has_password(image, user, number)
    return not any(name == user for name, _ in image.scram_credentials)
