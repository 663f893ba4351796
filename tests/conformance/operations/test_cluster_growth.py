"""A cluster that grows and shrinks under load: no request of a client fails, and nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
from functools import partial

import pytest

from tests.cluster.admin import until
from tests.conformance.cli.test_check import Check, wait_until_written
from tests.conformance.drop_in.drop_in import Place
from tests.conformance.pages.test_cluster_page import Reader, reader

__all__ = ["reader"]


def test_a_node_comes_and_goes_under_load(reader: Reader) -> None:
    reader.terminal("up", "ottla cluster up 3 c")
    check = Check(reader.environ["OTTLA_BOOTSTRAP"], "--topic", "load", "-p", "6", "--seconds", "280")
    wait_until_written(check, reader.directory / "c" / "node-1" / "data", "load")
    reader.terminal("add", "ottla cluster add c/node-4")
    reader.run("ottla cluster balance --run --json > moved")
    moved = json.loads((reader.directory / "moved").read_text())
    assert any(4 in each["new_replicas"] for each in moved["moves"])
    check.ensure_running()
    reader.run("ottla cluster drain 4")
    check.ensure_running()
    reader.stop("add")
    reader.run("ottla cluster remove 4")
    ensure_nothing_failed(check)
    reader.stop("up")


def test_one_node_grows_into_three_voters_and_shrinks_back_under_load(reader: Reader) -> None:
    """The directory of one node: others join it, vote with it, copy all that it has, and leave again."""
    reader.terminal("up", "ottla cluster up 1 c")
    check = Check(reader.environ["OTTLA_BOOTSTRAP"], "--topic", "load", "-p", "3", "--rate", "300", "--seconds", "280")
    wait_until_written(check, reader.directory / "c" / "node-1" / "data", "load")
    grow(reader, check)
    reader.run("ottla topic replicate --all --factor 1 && ottla cluster drain 2 3")
    assert voters(reader) == {1}
    for number in (3, 2):
        reader.stop(f"node-{number}")
        reader.run(f"ottla cluster remove {number}")
    ensure_nothing_failed(check)
    reader.stop("up")


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")
def test_a_directory_of_one_kafka_grows_into_three_voters_under_load(reader: Reader) -> None:
    """Its quorum is static until the first controller joins. Afterwards its node may be lost, and nothing else is."""
    values = [str(number) for number in range(100)]
    place = Place(reader.directory / "kafka")
    with place.running("kafka") as client:
        assert client.create("before") == "none"
        client.produce_all("before", *(value.encode() for value in values))
        reader.environ["OTTLA_BOOTSTRAP"] = place.bootstrap
        assert consumed(reader, "before", "--group early --count 40") == values[:40]
    place.ottla.start()
    try:
        check = Check(place.bootstrap, "--topic", "load", "-p", "3", "--rate", "300", "--seconds", "280")
        wait_until_written(check, place.kafka.data, "load")
        grow(reader, check)
        ensure_nothing_failed(check)
        settings = (reader.directory / "c" / "node-2" / "server.properties").read_text()
        (found,) = re.findall(r"^advertised.listeners=PLAINTEXT://(\S+)$", settings, re.M)
        reader.environ["OTTLA_BOOTSTRAP"] = found
        place.ottla.kill()
        assert consumed(reader, "before", "--group early --count 60") == values[40:]
    finally:
        if place.ottla.process is not None:
            place.ottla.kill()


def ensure_nothing_failed(check: Check) -> None:
    """Ends the load, which lasts for as long as it is needed."""
    check.ensure_running()
    check.process.send_signal(signal.SIGINT)
    _, report = check.result()
    assert (report["sound"], report["failed"]) == (True, 0)
    assert report["acknowledged"] > 100


def grow(reader: Reader, check: Check) -> None:
    """Nodes 2 and 3 join, vote, and copy all that node 1 has."""
    for number in (2, 3):
        reader.terminal(f"node-{number}", f"ottla cluster add c/node-{number} --controller")
        until(partial(voters, reader), set(range(1, number + 1)).__eq__)
        check.ensure_running()
    reader.run("ottla topic replicate --all --factor 3 && ottla topic describe load --json > described")
    (described,) = json.loads((reader.directory / "described").read_text())
    assert all(sorted(each["isr"]) == [1, 2, 3] for each in described["partitions"])
    check.ensure_running()


def consumed(reader: Reader, topic: str, how: str) -> list[str]:
    reader.run(f"ottla consume {topic} --from beginning {how} > values")
    return (reader.directory / "values").read_text().splitlines()


def voters(reader: Reader) -> set[int]:
    reader.run("ottla quorum describe --json > quorum")
    replicas = json.loads((reader.directory / "quorum").read_text())["replicas"]
    return {each["id"] for each in replicas if each["role"] != "observer"}
