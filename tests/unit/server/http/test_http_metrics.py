"""What a running node says of itself: every metric of the table, and the numbers behind some of them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ottla.drivers.logs.log_cleaner import LogCleaner
from ottla.errors import ErrorCode
from ottla.metrics.table import METRICS
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.server.http import metrics as http_metrics
from ottla.server.http.callers import Caller
from ottla.server.http.lag import LagTimes
from ottla.server.node import Node
from tests.certificates import Authority, ssl_settings
from tests.unit.controller.test_acls import creation
from tests.unit.server.clients.test_quotas import CLIENT as QUOTA_CLIENT
from tests.unit.server.clients.test_quotas import alter, connect_as
from tests.unit.server.clients.test_telemetry import push
from tests.unit.server.coordinators.test_share_fetch import Member, initialize
from tests.unit.server.node import Client, batch, produce_values, running
from tests.unit.server.stub import run, until
from tests.unit.telemetry.otlp import pushed

LISTENER = {"ottla.http.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
CALLER = Caller("User:admin", "127.0.0.1", True)
ROOT = Path(__file__).resolve().parents[4]
Samples = Mapping[str, Mapping[frozenset[tuple[str, str]], float]]


async def page(node: Node, *, openmetrics: bool = False) -> str:
    assert node.http is not None
    headers = {"accept": "application/openmetrics-text" if openmetrics else ""}
    answer = await node.http.pages.answer("GET", "/metrics", headers, CALLER)
    return b"".join(answer.body).decode()


async def scrape(node: Node) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in parse_text(await page(node)):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get(name, {}).get(frozenset(labels.items()))


async def commit(client: Client, group: str, topic: str, offset: int, partition: int = 0) -> None:
    while True:  # the topic of offsets is made when the first one asks
        answer = await client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
        if not answer["error_code"]:
            break
    part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
    part["committed_metadata"] = ""
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    body |= {"topics": [{"name": topic, "partitions": [part]}]}
    while True:
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 7, body)
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code not in (14, 15, 16):
            assert not code
            return


async def join(client: Client, group: str, member: str = "") -> Any:
    body = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000, "member_id": member}
    body |= {"group_instance_id": None, "protocol_type": "consumer"}
    return await client.ask(ApiKey.JOIN_GROUP, 5, body | {"protocols": [{"name": "range", "metadata": b""}]})


async def busy(node: Node) -> None:
    """Make everything happen that a metric counts."""
    client = await Client.connect(node)
    await client.create("orders", {"flush.messages": "1"}, partitions=2)
    await client.create("small", {"max.message.bytes": "100"})
    await client.produce("orders", batch(100, count=3))
    await client.produce("small", batch(500))
    await client.fetch("orders", 0)
    await client.fetch("orders", 99)
    await commit(client, "readers", "orders", 1)
    member = (await join(client, "joined"))["member_id"]
    assert not (await join(client, "joined", member))["error_code"]
    got = await client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": None})
    assert not (await client.ask(ApiKey.PUSH_TELEMETRY, 0, push(got, pushed())))["error_code"]
    client.close()


async def share(node: Node) -> Member:
    """A member of a share group that has records; what is counted of it ends with its connection."""
    member = await Member.connect(node)
    await member.client.create("t")
    await member.client.produce("t", batch(count=3))
    await initialize(node, member, 0)
    assert await member.fetch(max_wait=10_000) == [(0, 2, 1)]
    assert not await member.acknowledge((0, 0, 1))
    node.share_coordinator.pruned[0] = 1  # it looks every five minutes for what there is to prune
    return member


async def limit(node: Node) -> None:
    """Quotas of every kind for the client, and something that counts for each."""
    client = await Client.connect(node)
    rates = {"producer_byte_rate": 2e4, "consumer_byte_rate": 1e9, "request_percentage": 99.0}
    assert await alter(client, [("ip", "127.0.0.1")], {"connection_creation_rate": 1000.0}) == (0, None)
    assert await alter(client, QUOTA_CLIENT, rates | {"controller_mutation_rate": 100.0}) == (0, None)
    await client.create("limited")
    await client.fetch("limited", 0)
    client.close()


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_metric_of_the_table_and_no_other_with_its_type_and_labels(tmp_path: Any, openmetrics: bool) -> None:
    authority = Authority()
    secured = ssl_settings(tmp_path / "tls", authority, authority.issue("node"))
    audited = {"ottla.audit.directory": str(tmp_path / "audit"), "ottla.audit.topic": "audit"}
    settings = {**LISTENER, **secured, **audited, "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings | AUTHORIZED) as node:
            await busy(node)
            member = await share(node)
            node.share.partitions.metrics.letters_of("g").records += 1
            await limit(node)
            text = await page(node, openmetrics=openmetrics)
            member.client.close()
        families = list((parse_openmetrics if openmetrics else parse_text)(text))
        types = {f.name + ("_total" if f.type == "counter" else ""): f.type for f in families}
        assert types == {metric.name: metric.type for metric in METRICS.values()}
        for family in families:
            metric = METRICS[family.name + ("_total" if family.type == "counter" else "")]
            seen = {name for sample in family.samples for name in sample.labels} - {"le"}
            assert seen == set(metric.labels), metric.name

    run(test())


def test_numbers_of_topics_and_requests(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            await busy(node)
            found = await scrape(node)
            size = len(batch(100, count=3))
            prefix = "kafka_server_brokertopicmetrics_"
            assert value(found, f"{prefix}messagesin_total", topic="orders") == 3
            assert value(found, f"{prefix}bytesin_total", topic="orders") == size
            assert value(found, f"{prefix}bytesout_total", topic="orders") == size
            assert value(found, f"{prefix}totalproducerequests_total", topic="orders") == 1
            assert value(found, f"{prefix}failedfetchrequests_total", topic="orders") == 1
            assert value(found, f"{prefix}failedproducerequests_total", topic="small") == 1
            assert value(found, f"{prefix}bytesrejected_total", topic="small") == len(batch(500))
            total = sum(each for key, each in found[f"{prefix}bytesin_total"].items() if key)
            assert value(found, f"{prefix}bytesin_total") == total > size
            requests = "kafka_network_requestmetrics_"
            assert value(found, f"{requests}requests_total", request="Produce", version="9") == 2
            assert value(found, f"{requests}totaltime_seconds_count", request="Produce") == 2
            assert value(found, f"{requests}errors_total", request="Produce", error="MESSAGE_TOO_LARGE") == 1
            assert value(found, f"{requests}errors_total", request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
            assert value(found, f"{requests}errors_total", request="JoinGroup", error="MEMBER_ID_REQUIRED") == 1
            assert value(found, "kafka_log_log_logendoffset", topic="orders", partition="0") == 3
            assert value(found, "kafka_log_log_size", topic="orders", partition="0") == size
            assert (value(found, "kafka_log_logflushstats_logflushtime_seconds_count") or 0) >= 1
            assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
            assert value(found, "kafka_server_replicamanager_partitioncount") == 53
            assert value(found, "ottla_group_rebalances_total") == 1
            assert value(found, "ottla_ready") == 1

    run(test())


def test_acls_and_denials_are_counted(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER | AUTHORIZED | {"super.users": "User:admin"}) as node:
            client = await Client.connect(node)
            for _ in range(2):
                answer = await client.ask(ApiKey.CREATE_ACLS, 3, {"creations": [creation()]})
                assert answer["results"][0]["error_code"] == ErrorCode.cluster_authorization_failed
            await node.channel.send(ApiKey.CREATE_ACLS, {"creations": [creation(), creation("other")]})
            found = await scrape(node)
            assert value(found, "kafka_server_plugins_authorization_denied_total") == 2
            assert value(found, "kafka_server_plugins_acls_total_count") == 2
            client.close()
        async with running(str(tmp_path), LISTENER, seed=2) as node:
            assert "kafka_server_plugins_acls_total_count" not in await scrape(node)

    run(test())


def test_what_the_quorum_measures(tmp_path: Any) -> None:
    """Over windows so long that nothing falls out of them, and so short that what is done shows in six decimals."""

    async def test() -> None:
        async with running(str(tmp_path), LISTENER | {"metrics.sample.window.ms": "600000"}) as node:
            await busy(node)
            found = await scrape(node)
            prefix = "kafka_server_raft_metrics_"
            measured = {name: value(found, prefix + name) for name in node.metadata.quorum.metrics.values()}
            assert len(measured) == 7 and None not in measured.values()
            for name in ("commit_latency", "election_latency"):
                assert 0 < (measured[f"{name}_avg"] or 0) <= (measured[f"{name}_max"] or 0) < 600_000
            assert 0 < (measured["append_records_rate"] or 0) < 1
            assert measured["fetch_records_rate"] == 0
            assert 0 < (measured["poll_idle_ratio_avg"] or 0) < 1

    run(test())


def test_produce_requests_that_take_the_short_way_are_counted_too(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(7):
                await client.produce("t", batch(10))
            found = await scrape(node)
            requests = "kafka_network_requestmetrics_"
            assert value(found, f"{requests}requests_total", request="Produce", version="9") == 7
            assert value(found, f"{requests}totaltime_seconds_count", request="Produce") == 7
            assert 0 < (value(found, f"{requests}totaltime_seconds_sum", request="Produce") or 0) < 600
            assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 7

    run(test())


def test_totals_stay_when_a_topic_goes(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch(10))
            await client.ask(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["t"], "timeout": 1000})
            found = await scrape(node)
            assert value(found, "kafka_server_brokertopicmetrics_messagesin_total") == 1
            assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") is None

    run(test())


def stamped(*times_ms: int) -> bytes:
    return bytes(build_batch([SimpleRecord(time_ms, None, b"v") for time_ms in times_ms]))


def test_lag_in_records_and_in_seconds(tmp_path: Any) -> None:
    """Groups without members; the timestamp of the first uncommitted record counts."""

    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            now_ms = node.clock.now_ms()
            for ago_s in (90, 60, 30):
                await client.produce("t", stamped(now_ms - ago_s * 1000))
            await commit(client, 'a "group"\n', "t", 1)
            await commit(client, "done", "t", 3)
            await commit(client, "done", "t", 0, partition=1)
            where = {"consumergroup": 'a "group"\n', "topic": "t"}
            found = await scrape(node)
            assert value(found, "kafka_consumergroup_lag", **where, partition="0") == 2
            assert value(found, "kafka_consumergroup_current_offset", **where, partition="0") == 1
            assert value(found, "kafka_consumergroup_members", consumergroup='a "group"\n') == 0
            assert 60 <= (value(found, "kafka_consumergroup_lag_seconds", **where, partition="0") or 0) < 600
            assert 60 <= (value(found, "kafka_consumergroup_lag_seconds_max", **where) or 0) < 600
            assert value(found, "kafka_consumergroup_lag_sum", consumergroup="done", topic="t") == 0
            assert value(found, "kafka_consumergroup_lag_seconds_max", consumergroup="done", topic="t") == 0
            await commit(client, 'a "group"\n', "t", 2)
            found = await scrape(node)
            assert 30 <= (value(found, "kafka_consumergroup_lag_seconds", **where, partition="0") or 0) < 60
            await client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ['a "group"\n']})
            assert value(await scrape(node), "kafka_consumergroup_lag_sum", **where) is None

    run(test())


def test_partitions_can_be_left_out(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER | {"ottla.metrics.partitions": "false"}) as node:
            await busy(node)
            found = await scrape(node)
            assert [name for name, metric in METRICS.items() if metric.per_partition and name in found] == []
            assert value(found, "kafka_consumergroup_lag_sum", consumergroup="readers", topic="orders") == 2
            assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 3

    run(test())


def test_a_timestamp_is_looked_up_once(tmp_path: Any, monkeypatch: Any) -> None:
    looks = []
    real = LagTimes._look

    async def look(self: LagTimes, log: Any, offset: int) -> int | None:
        looks.append(offset)
        return await real(self, log, offset)

    monkeypatch.setattr(LagTimes, "_look", look)

    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", stamped(1_000, 2_000, 3_000))
            await commit(client, "g", "t", 1)
            for _ in range(3):
                await scrape(node)
            assert looks == [1]
            await client.ask(ApiKey.DELETE_RECORDS, 1, delete_records("t", 2))
            await scrape(node)
            assert looks == [1, 2]

    run(test())


def delete_records(topic: str, offset: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": topic, "partitions": partitions}], "timeout": 1000}


def test_records_that_are_not_in_memory_are_read_in_a_thread_and_few_at_once(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("ottla.server.http.lag.COLD_LOOKS_MAX", 1)

    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            for partition in range(2):
                await client.produce("t", stamped(1_000), partition=partition)
                await commit(client, "g", "t", 0, partition)
            file = type(node.replicas.find("t", 0).log.read(0, 1, up_to=1).file)
            pread, pread_nowait = file.pread, file.pread_nowait
            warm: set[int] = set()
            threads = []

            def read(self: Any, length: int, position: int) -> bytes:
                warm.add(self.fileno())
                threads.append(threading.current_thread())
                return pread(self, length, position)

            def read_nowait(self: Any, length: int, position: int) -> bytes | None:
                return pread_nowait(self, length, position) if self.fileno() in warm else None

            monkeypatch.setattr(file, "pread", read)
            monkeypatch.setattr(file, "pread_nowait", read_nowait)
            for known in (1, 2):
                found = await scrape(node)
                assert len(found["kafka_consumergroup_lag"]) == 2
                assert len(found["kafka_consumergroup_lag_seconds"]) == known
            assert len(warm) == 2 and threading.main_thread() not in threads

    run(test())


def test_other_clients_are_served_during_a_scrape(tmp_path: Any, monkeypatch: Any) -> None:
    """With one piece of work in a turn, everything else on the loop gets a turn between any two pieces of work."""
    monkeypatch.setattr(http_metrics, "PIECES_AT_ONCE", 1)

    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=300)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            await page(node)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert turns > 300 // 64 * 2

    run(test())


def test_the_page_says_what_happens_while_topics_go(tmp_path: Any, monkeypatch: Any) -> None:
    """A topic that is deleted between two pieces of a scrape does not break it."""
    monkeypatch.setattr(http_metrics, "PIECES_AT_ONCE", 1)

    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            for number in range(5):
                await client.create(f"t{number}", partitions=40)
                await commit(client, "g", f"t{number}", 0)
                await client.produce(f"t{number}", batch(10))

            async def remove() -> None:
                for number in range(5):
                    names = {"topic_names": [f"t{number}"], "timeout": 1000}
                    await client.ask(ApiKey.DELETE_TOPICS, 3, names)

            removing = asyncio.create_task(remove())
            while not removing.done():
                assert list(parse_text(await page(node)))
            await removing
            assert not re.search(r'topic="t\d"', await page(node))

    run(test())


def test_an_uncleanable_log_is_logged_once_counted_and_served(tmp_path: Any, caplog: Any, monkeypatch: Any) -> None:
    """Until the next start, which tries again."""
    metric = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    settings = {**LISTENER, "log.cleaner.backoff.ms": "1"}
    later = {"min.compaction.lag.ms": "3600000", "min.cleanable.dirty.ratio": "0"}
    topic = {"cleanup.policy": "compact", "internal.segment.bytes": "300", "message.timestamp.type": "LogAppendTime"}
    looks = 0
    choose = LogCleaner.choose

    def counting(self: LogCleaner, now_ms: int) -> Any:
        nonlocal looks
        looks += 1
        return choose(self, now_ms)

    def errors() -> int:
        return sum(each.levelname == "ERROR" and "log marked uncleanable" in each.message for each in caplog.records)

    async def some_looks() -> None:
        seen = looks
        await until(lambda: looks > seen + 5)

    async def damaged() -> bytes:
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            await client.create("t", {**topic, **later})
            for _ in range(6):
                assert not (await client.produce("t", batch(150)))["error_code"]
            (path,) = tmp_path.glob("t-0/*0.log")
            content = bytearray(path.read_bytes())
            content[-3] ^= 1
            path.write_bytes(content)
            assert value(await scrape(node), metric, logDirectory=str(tmp_path)) == 0
            await set_lag(client, "0")
            await until(lambda: node.cleaner.uncleanable)
            await some_looks()
            assert value(await scrape(node), metric, logDirectory=str(tmp_path)) == 1
            assert errors() == 1
            answer = await client.fetch("t", 0)
            assert not answer["error_code"]
            assert bytes(answer["records"]).startswith(content)
            client.close()
            return bytes(content)

    async def again(content: bytes) -> None:
        async with running(str(tmp_path), settings) as node:
            await until(lambda: node.cleaner.uncleanable)
            await some_looks()
            assert errors() == 2
        assert (tmp_path / "t-0" / f"{0:020d}.log").read_bytes() == content

    monkeypatch.setattr(LogCleaner, "choose", counting)
    run(again(run(damaged())))


async def set_lag(client: Client, milliseconds: str) -> None:
    entries = [{"name": "min.compaction.lag.ms", "config_operation": 0, "value": milliseconds}]
    resource = {"resource_type": 2, "resource_name": "t", "configs": entries}
    values = {"resources": [resource], "validate_only": False}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    assert not answer["responses"][0]["error_code"], answer


def test_what_a_recovery_cut_off_and_kept(tmp_path: Path) -> None:
    """The first of two batches is broken, and nothing says that they were fsynced: both go into a side file."""
    directory = str(tmp_path)

    async def recovered(node: Node) -> dict[str, float | None]:
        found = await scrape(node)
        return {name: value(found, f"ottla_recovery_{name}_bytes", directory=directory) for name in names}

    names = ("checked", "truncated", "kept")

    async def test() -> None:
        async with running(directory, LISTENER) as node:
            client = await Client.connect(node)
            await client.create("cut")
            await client.produce("cut", batch(1000))
            await client.produce("cut", batch(1000))
            client.close()
            assert await recovered(node) == dict.fromkeys(names, 0)
        path = tmp_path / "cut-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        async with running(directory, LISTENER, seed=2) as node:
            found = await recovered(node)
            assert found["truncated"] == found["kept"] == len(data)

    asyncio.run(test())


def test_transactions_from_their_beginning_to_their_end_and_one_that_hangs(tmp_path: Any) -> None:
    """A node without transactions does not make a coordinator to say so."""

    async def test() -> None:
        settings = {"transaction.state.log.num.partitions": "3", "transaction.partition.verification.enable": "false"}
        async with running(str(tmp_path), LISTENER | settings) as node:
            client = await Client.connect(node)
            await client.create("t")
            found = await scrape(node)
            assert value(found, "ottla_transactions", state="Ongoing") == 0
            assert "transactions" not in vars(node)

            given = await init_producer_id(client, "id")
            found = await scrape(node)
            prefix = "kafka_server_transaction_coordinator_metrics_"
            assert value(found, f"{prefix}num_partitions", state="active") == 3
            assert value(found, f"{prefix}partition_load_time_max") == 0
            assert value(found, "ottla_transactions", state="Empty") == 1

            now_ms = node.clock.now_ms()
            producer = {"producer_id": given["producer_id"], "producer_epoch": 0, "base_sequence": 0}
            adding = {
                "transactional_id": "id",
                "producer_id": given["producer_id"],
                "producer_epoch": 0,
                "topics": [{"name": "t", "partitions": [0]}],
            }
            await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {f"v3_and_below_{k}": v for k, v in adding.items()})
            late_ms = now_ms - node.config["transaction.max.timeout.ms"] - http_metrics.LATE_TRANSACTION_MS - 1
            late = build_batch([SimpleRecord(late_ms, None, b"v")], transactional=True, **producer)
            await client.ask(ApiKey.PRODUCE, 9, {**produce_values("t", bytes(late)), "transactional_id": "id"})
            found = await scrape(node)
            assert value(found, "ottla_transactions", state="Ongoing") == 1
            assert 0 <= (value(found, "ottla_transaction_open_seconds_max") or 0) < 600
            late_count = "kafka_server_replicamanager_partitionswithlatetransactionscount"
            assert value(found, late_count) == 1
            assert (value(found, "kafka_server_replicamanager_produceridcount") or 0) >= 1

            ending = {"transactional_id": "id", "producer_id": given["producer_id"], "producer_epoch": 0}
            await client.ask(ApiKey.END_TXN, 3, {**ending, "committed": True})
            while value(found := await scrape(node), "ottla_transactions", state="CompleteCommit") != 1:
                pass
            assert value(found, late_count) == 0
            assert value(found, "ottla_transaction_open_seconds_max") == 0

    run(test())


async def init_producer_id(client: Client, transactional_id: str) -> Any:
    """Until the coordinator is there."""
    await client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": transactional_id, "key_type": 1})
    while True:
        answer = await client.ask(
            ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": transactional_id, "transaction_timeout": 60_000}
        )
        if not answer["error_code"]:
            return answer


def test_who_is_held_back_by_which_quota_and_for_how_long(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            assert not [name for name in await scrape(node) if "quota" in name or "throttle" in name]
            await limit(node)
            first, second = await Client.connect(node), await connect_as(node, "second")
            await first.produce("limited", batch(230_000))
            await second.produce("limited", batch(230_000))
            found = await scrape(node)
            produce = {"resource": "Produce", "user": "", "clientId": "test"}
            rate = value(found, "kafka_server_quota_byte_rate", **produce)
            assert rate is not None and 20_000 < rate < 24_000, "230 KB in ten windows of a second"
            held_ms = value(found, "kafka_server_quota_throttle_time", **produce)
            assert held_ms is not None and 1_000 < held_ms < 2_000
            assert value(found, "ottla_quota_throttles_total", resource="Produce") == 1
            assert value(found, "ottla_quota_throttled_seconds_total", resource="Produce") == held_ms / 1000
            assert value(found, "ottla_quota_throttles_total", resource="Fetch") == 0
            unlimited = produce | {"clientId": "second"}
            assert value(found, "kafka_server_quota_byte_rate", **unlimited) > 20_000
            assert math.isnan(value(found, "kafka_server_quota_throttle_time", **unlimited) or 0.0)
            mutations = produce | {"resource": "ControllerMutation"}
            assert value(found, "kafka_server_quota_mutation_rate", **mutations) == pytest.approx(0.1, rel=0.2)
            assert value(found, "kafka_server_quota_request_time", **produce | {"resource": "Request"}) > 0
            first.close()
            second.close()

    run(test())


def test_clients_that_wait_because_too_many_connect(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), {**LISTENER, "max.connection.creation.rate": "1"}) as node:
            name = "kafka_server_socket_server_metrics_connection_accept_throttle_time"
            clients = [await Client.connect(node) for _ in range(12)]
            waited_ms = value(await scrape(node), name, listener="PLAINTEXT")
            assert waited_ms is not None and 0 < waited_ms <= 1_000, "one window at most"
            assert math.isnan(
                value(await scrape(node), name.replace("connection", "ip_connection"), listener="PLAINTEXT") or 0
            )
            for client in clients:
                client.close()

    run(test())


def test_a_thousand_clients_that_were_heard_last_are_shown(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            await limit(node)
            assert node.quotas is not None
            produce = node.quotas.clients.produce
            now_ms = node.quotas.now_ms()
            for number in range(1_010):
                produce.record("", f"made-up-{number}", 1.0, now_ms + number)
            found = await scrape(node)
            shown = {
                dict(labels)["clientId"]
                for labels in found["kafka_server_quota_byte_rate"]
                if dict(labels)["resource"] == "Produce"
            }
            assert len(shown) == 1_000 and "made-up-1009" in shown and "made-up-9" not in shown

    run(test())


def test_offsets_are_counted_whichever_way_they_are_committed(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), LISTENER) as node:
            client = await Client.connect(node)
            await client.create("t")
            for offset in range(5):  # the later ones go in the batch of their turn
                await commit(client, "g", "t", offset)
            found = await scrape(node)
            prefix = "kafka_server_group_coordinator_metrics_"
            assert value(found, f"{prefix}offset_commit_count") == 5
            assert value(found, f"{prefix}num_partitions", state="active") == 50
            topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            await client.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
            found = await scrape(node)
            assert value(found, f"{prefix}offset_deletion_count") == 1
            assert value(found, f"{prefix}offset_expiration_count") == 0

    run(test())
