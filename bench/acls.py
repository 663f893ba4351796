"""Many ACLs: `python -m bench.acls` says what 100,000 ACLs of 10,000 users cost a node.

Time to load them, memory, the time of a decision and of a change, and the start of a node that has them in its metadata
log. In this process and on its core; a busy machine shows.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random as random_module
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.controller.acls import create_acls
from ottla.filesystem import OsFileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.replay import replay
from ottla.network import SystemNetwork
from ottla.protocol.internal.metadata_records import decode_record, encode_record
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas import records as r
from ottla.security.acls import Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import Authorizer
from ottla.server.main import MIDDLE_COLLECTIONS_MAX, YOUNG_COLLECTIONS_MAX, YOUNG_OBJECTS_MAX
from ottla.server.node import Node
from ottla.steps import at_once

HOST = "10.0.0.1"
LOOK_UPS = 50_000
CREATED_AT_ONCE = 5_000
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:admin",
}  # fmt: skip
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def records(acls: int, users: int) -> Iterator[r.AccessControlEntryRecord]:
    """Each user has own topics, prefixes of a few lengths that many have, and groups."""
    random = random_module.Random(1)
    seen = set()
    while len(seen) < acls:
        number = len(seen)
        user = f"User:service-{number % users}"
        kind = ResourceType.GROUP if number // users % 5 == 4 else ResourceType.TOPIC
        pattern = PatternType.PREFIXED if number // users % 5 in (1, 3) else PatternType.LITERAL
        name = f"team-{random.randrange(500)}." + "x" * random.choice((0, 4, 8, 16)) + f"{random.randrange(10_000)}"
        content = (kind, name, pattern, user, OPERATIONS[number % 3])
        if content not in seen:
            seen.add(content)
            yield r.AccessControlEntryRecord(
                UUID(int=random.getrandbits(128), version=4),
                kind,
                name,
                pattern,
                user,
                "*",
                OPERATIONS[number % 3],
                Permission.ALLOW,
            )


def loaded(frames: list[bytes]) -> tuple[MetadataImage, float]:
    """The image that the records give, and the seconds that it took."""
    began_s = time.perf_counter()
    delta = MetadataDelta(EMPTY_IMAGE)
    for frame in frames:
        replay(decode_record(frame)[0], delta)
    return delta.apply(0, 1, 1), time.perf_counter() - began_s


def each_us(work: Callable[[int], object], times: int = LOOK_UPS) -> float:
    began_s = time.perf_counter()
    for number in range(times):
        work(number)
    return (time.perf_counter() - began_s) / times * 1e6


def measure(acls: int, users: int) -> None:
    frames = [encode_record(record, 0) for record in records(acls, users)]
    gc.collect()
    before = resident_bytes()
    image, load_s = loaded(frames)
    gc.collect()
    of_image = resident_bytes() - before
    began_s = time.perf_counter()
    authorizer = Authorizer()
    authorizer.apply(dict(image.acls.items()), {})
    authorizer.ready = True
    index_s = time.perf_counter() - began_s
    gc.collect()
    of_index = resident_bytes() - before - of_image
    print(f"{acls} ACLs of {users} users")
    print(f"  image: {load_s:.2f} s, {of_image / 1e6:.0f} MB; index: {index_s:.2f} s, {of_index / 1e6:.0f} MB")
    own = [acl for acl in image.acls.values() if acl.resource_type == ResourceType.TOPIC]
    random_module.Random(2).shuffle(own)

    def ask(number: int, suffix: str = "") -> bool:
        acl = own[number % len(own)]
        return authorizer.is_allowed(acl.principal, HOST, acl.operation, ResourceType.TOPIC, acl.resource_name + suffix)

    def first(work: Callable[[int], object]) -> Callable[[int], object]:
        def forgetting(number: int) -> object:
            authorizer._decisions.clear()
            return work(number)

        return forgetting

    assert ask(0) and ask(0, "-other") is (own[0].pattern_type == PatternType.PREFIXED)
    print(f"  allowed, first time: {each_us(first(ask)):.2f} us; denied or by prefix: ", end="")
    print(f"{each_us(first(lambda number: ask(number, '-other'))):.2f} us; remembered: ", end="")
    print(f"{each_us(lambda number: ask(0)):.2f} us")
    write, topic = Operation.WRITE, ResourceType.TOPIC
    any_topic = each_us(lambda number: authorizer.is_allowed_for_any("User:service-1", HOST, write, topic))
    print(f"  any topic: {any_topic:.2f} us")
    creation = {
        "resource_type": 2,
        "resource_name": "new",
        "resource_pattern_type": 3,
        "principal": "User:new",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    for which in ("first", "next"):
        began_s = time.perf_counter()
        decision = at_once(create_acls(image, {"creations": [creation]}, random_module.Random(3)))
        delta = MetadataDelta(image)
        replay(decision.records[0], delta)
        changed = delta.apply(1, 1, 1)
        authorizer.apply(delta.acls, image.acls)
        print(f"  {which} ACL created: {(time.perf_counter() - began_s) * 1e3:.2f} ms")
        image, creation = changed, {**creation, "resource_name": "next"}


async def starts(acls: int, users: int) -> None:
    """The start of a node without ACLs, and with all of them."""
    with tempfile.TemporaryDirectory() as directory:
        config = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}
        rows = [
            {
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
                "resource_pattern_type": each.pattern_type,
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission_type,
            }
            for each in records(acls, users)
        ]
        for creations in (rows, []):
            random = random_module.Random(len(creations))
            node = Node(ServerConfig.load(None, config, {}), OsFileSystem(), SystemClock(), random, SystemNetwork())
            await node.start()
            had = len(node.image.acls)
            print(f"  start with {had} ACLs: {node.start_seconds:.2f} s, {resident_bytes() / 1e6:.0f} MB in all")
            began_s = time.perf_counter()
            for start in range(0, len(creations), CREATED_AT_ONCE):
                some = {"creations": creations[start : start + CREATED_AT_ONCE]}
                await node.channel.send(ApiKey.CREATE_ACLS, some)
            if creations:
                print(f"  created by requests of {CREATED_AT_ONCE}: {time.perf_counter() - began_s:.1f} s")
            await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="what many ACLs cost a node")
    parser.add_argument("--acls", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=10_000)
    given = parser.parse_args()
    gc.freeze()  # as a node does
    gc.set_threshold(YOUNG_OBJECTS_MAX, YOUNG_COLLECTIONS_MAX, MIDDLE_COLLECTIONS_MAX)
    measure(given.acls, given.users)
    asyncio.run(starts(given.acls, given.users))


if __name__ == "__main__":
    main()
