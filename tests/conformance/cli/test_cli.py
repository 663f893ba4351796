"""The command line as its users type it, end to end: processes, pipes, exit codes, a node and its log directory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.compiled import how
from tests.node import NodeProcess


def ottla(bootstrap: str, *arguments: str, text: str | bytes = b"", code: int = 0) -> str:
    """Run a command and return what it printed; `code` is the exit code that it must have."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *arguments],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        timeout=300,
        check=False,
        env={**os.environ, "OTTLA_BOOTSTRAP": bootstrap},
    )
    assert done.returncode == code, done.stderr.decode()
    return (done.stdout if code == 0 else done.stderr).decode()


def records(bootstrap: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ottla(bootstrap, "consume", topic, "--json", *arguments).splitlines()]


def test_a_topic_from_creation_to_deletion(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "--partitions", "3", "--set", "retention.ms=3600000")
    assert "already exists" in ottla(bootstrap, "topic", "create", topic, code=1)
    assert ottla(bootstrap, "topic", "create", topic, "--if-not-exists") == f"{topic} exists already\n"
    listed = json.loads(ottla(bootstrap, "topic", "list", "--json"))
    assert {"topic": topic, "partitions": 3, "replication_factor": 1} in listed

    ottla(
        bootstrap, "topic", "alter", topic, "--partitions", "4", "--set", "segment.ms=60000", "--unset", "retention.ms"
    )
    (described,) = json.loads(ottla(bootstrap, "topic", "describe", topic, "--json"))
    assert described["settings"] == {"segment.ms": "60000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2, 3]
    assert {p["leader"] for p in described["partitions"]} == {1}
    table = ottla(bootstrap, "topic", "describe", topic)
    assert topic in table and "segment.ms" in table

    assert "INVALID_PARTITIONS" in ottla(bootstrap, "topic", "alter", topic, "--partitions", "2", code=1)
    assert "INVALID_CONFIG" in ottla(bootstrap, "topic", "alter", topic, "--set", "segment.ms=soon", code=1)
    ottla(bootstrap, "topic", "delete", topic)
    assert "UNKNOWN_TOPIC" in ottla(bootstrap, "topic", "describe", topic, code=1)
    assert "UNKNOWN_TOPIC" in ottla(bootstrap, "topic", "delete", topic, code=1)
    assert ottla(bootstrap, "topic", "delete", topic, "--if-exists") == f"{topic} does not exist\n"


def test_a_dry_run_creates_nothing(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "--dry-run")
    assert topic not in ottla(bootstrap, "topic", "list")
    assert "REPLICATION_FACTOR" in ottla(bootstrap, "topic", "create", topic, "-r", "9", "--dry-run", code=1)


def test_lines_in_and_the_same_lines_out(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    lines = "".join(f"line {number} é\n" for number in range(1000))
    summary = json.loads(ottla(bootstrap, "produce", topic, "--compression", "zstd", "--json", text=lines))
    assert summary["records"] == 1000
    assert summary["partitions"] == [{"partition": 0, "records": 1000, "first_offset": 0, "last_offset": 999}]
    assert ottla(bootstrap, "consume", topic) == lines


STRANGE = [
    {"partition": 0, "timestamp": 1, "key": None, "value": None},
    {"partition": 1, "timestamp": 1_700_000_000_000, "key": "", "value": ""},
    {"partition": 0, "timestamp": -1, "key": "a\tb\n", "value": "-"},
    {
        "partition": 1, "timestamp": 1_700_000_000_001, "key_base64": "/wA=", "value_base64": "AP8KDQ==",
        "headers": [{"name": "a", "value": None}, {"name": "a", "value": ""}, {"name": "é:\t", "value_base64": "/w=="}],
    },
]  # fmt: skip


@pytest.mark.parametrize("form", ["json", "hex", "base64"])
def test_what_consume_prints_produce_writes_again(bootstrap: str, topic: str, form: str) -> None:
    ottla(bootstrap, "topic", "create", topic, f"{topic}-copy", "--partitions", "2")
    ottla(bootstrap, "produce", topic, "--format", "json", text="".join(json.dumps(each) + "\n" for each in STRANGE))
    printed = ottla(bootstrap, "consume", topic, "--format", form)
    ottla(bootstrap, "produce", f"{topic}-copy", "--format", form, text=printed)

    def content(name: str) -> list[Any]:
        return [{k: v for k, v in r.items() if k not in ("topic", "offset")} for r in records(bootstrap, name)]

    assert content(f"{topic}-copy") == sorted(STRANGE, key=lambda each: int(str(each["partition"])))


def test_looking_at_a_topic_makes_no_other(fresh_node: NodeProcess) -> None:
    ottla(fresh_node.bootstrap, "topic", "create", "t")
    ottla(fresh_node.bootstrap, "produce", "t", "a")
    assert ottla(fresh_node.bootstrap, "consume", "t") == "a\n"
    assert "no-such-topic" in ottla(fresh_node.bootstrap, "consume", "no-such-topic", code=1)
    listed = json.loads(ottla(fresh_node.bootstrap, "topic", "list", "--internal", "--json"))
    assert [each["topic"] for each in listed] == ["t"], "neither __consumer_offsets nor what was asked for"


def test_a_misspelt_topic_is_not_made_without_a_word(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    misspelt = f"{topic}s"
    said = ottla(bootstrap, "produce", misspelt, "a", code=1)
    assert f"did you mean {topic}" in said and "--create" in said
    assert misspelt not in ottla(bootstrap, "topic", "list").split()
    assert "1 record" in ottla(bootstrap, "produce", misspelt, "a", "--create")
    assert "1 record" in ottla(bootstrap, "produce", misspelt, "b", "--create")
    assert ottla(bootstrap, "consume", misspelt) == "a\nb\n"


def test_a_record_too_large_is_reported_by_its_line(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """The topic takes less than librdkafka's batches, so these have to be small enough."""
    ottla(bootstrap, "topic", "create", topic, "--set", "max.message.bytes=1000")
    file = tmp_path / "lines"
    file.write_text("".join(f"{n}\n" for n in range(300)) + "x" * 2000 + "\nlast\n")
    error = ottla(bootstrap, "produce", topic, "--file", str(file), code=1)
    assert f"line 301 of {file}: " in error and "1 record not written, 30" in error and "max.message.bytes" in error
    found = [record["value"] for record in records(bootstrap, topic)]
    assert found[:300] == [str(n) for n in range(300)]


def test_an_error_in_the_middle_says_what_went_before(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    error = ottla(bootstrap, "produce", topic, "-K", ",", text="a,1\nb,2\nc\n", code=1)
    assert "line 3 has no ','" in error and "2 records acknowledged before that" in error
    assert [record["value"] for record in records(bootstrap, topic)] == ["1", "2"]


def test_an_interrupted_producer_says_what_is_written(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    producer = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "produce", topic, "--bootstrap", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert producer.stdin is not None
        producer.stdin.write("one\ntwo\n")
        producer.stdin.flush()
        ottla(bootstrap, "consume", topic, "--follow", "--count", "2")  # written line by line, not at the end
        producer.send_signal(signal.SIGINT)
        out, error = producer.communicate(timeout=300)
    finally:
        producer.kill()
    assert (producer.returncode, error) == (130, "")
    assert out == f"2 records to {topic}: partition 0, offset 0 to 1\n"


def test_output_that_finds_no_room(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "produce", topic, text="".join(f"{n}\n" for n in range(10_000)))
    command = f"{sys.executable} -m ottla.cli.main consume {topic} --bootstrap {bootstrap} > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 1 and b"No space left on device" in done.stderr


def test_reading_from_any_offset_or_time(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    lines = "".join(json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000}) + "\n" for n in range(10))
    ottla(bootstrap, "produce", topic, "--from-json", text=lines)

    def values(*arguments: str) -> str:
        return "".join(record["value"] for record in records(bootstrap, topic, *arguments))

    assert values() == "0123456789"
    assert values("--from", "7") == "789"
    assert values("--from", "-2") == "89"
    assert values("--from", "3", "--to", "5") == "34"
    assert values("--from", "2023-11-14T22:13:26+00:00") == "6789"
    assert values("--to", "2023-11-14T22:13:22+00:00") == "01"
    assert values("--from", "1h") == ""
    assert values("--from", "end") == ""
    assert values("--count", "4") == "0123"
    assert values("--partition", "0", "--from", "9") == "9"
    assert "no partition 5" in ottla(bootstrap, "consume", topic, "--partition", "5", code=2)


def test_a_group_goes_on_where_it_stopped(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "produce", topic, "a", "b", "c")
    group = f"group-of-{topic}"
    assert ottla(bootstrap, "consume", topic, "--group", group, "--count", "2") == "a\nb\n"
    assert ottla(bootstrap, "consume", topic, "--group", group) == "c\n"
    ottla(bootstrap, "produce", topic, "d")
    assert ottla(bootstrap, "consume", topic, "--group", group) == "d\n"


def test_following_sees_what_arrives_and_ends_quietly(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "produce", topic, "old")
    follower = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "consume", topic, "--follow", "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "old\n"
        ottla(bootstrap, "produce", topic, "new")
        assert follower.stdout.readline() == "new\n"
        follower.send_signal(signal.SIGINT)
        out, error = follower.communicate(timeout=300)
        assert (follower.returncode, out, error) == (0, "", "")
    finally:
        follower.kill()


def test_a_reader_that_closes_the_pipe(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "produce", topic, text="x" * 100 + "\n" + "".join(f"{n}\n" for n in range(50_000)))
    command = f"{sys.executable} -m ottla.cli.main consume {topic} --bootstrap {bootstrap} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=300, check=True)
    assert (done.stdout, done.stderr) == (b"x" * 100 + b"\n", b"")


def test_a_dump_into_a_pipe_that_closes(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"topic-{number}").mkdir()
        (tmp_path / f"topic-{number}" / "00000000000000000000.log").touch()
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    command = f"{sys.executable} -m ottla.cli.main log dump {tmp_path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=300, check=True)
    assert done.stdout and done.stderr == b""


def test_an_unknown_topic_says_what_to_do(bootstrap: str) -> None:
    assert "ottla topic list" in ottla(bootstrap, "consume", "no-such-topic", code=1)
    assert "ottla topic list" in ottla(bootstrap, "topic", "describe", "no-such-topic", code=1)


@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="needs a node of its own")
class TestServer:
    def test_one_line_when_it_is_ready(self, fresh_node: NodeProcess) -> None:
        ottla(fresh_node.bootstrap, "topic", "create", "t")
        ottla(fresh_node.bootstrap, "produce", "t", "a")
        assert fresh_node.stop() == 0
        said = [line for line in fresh_node.output.read_text().splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)]
        assert said == [f"ottla: listening on {fresh_node.bootstrap}, data in {fresh_node.data} ({how()})"], (
            "beside the log"
        )

    def test_it_stops_and_leaves_a_sound_directory(self, fresh_node: NodeProcess) -> None:
        bootstrap = fresh_node.bootstrap
        ottla(bootstrap, "topic", "create", "events", "--partitions", "2", "--set", "segment.bytes=1048576")
        ottla(bootstrap, "produce", "events", text="".join(f"{n} {'x' * 500}\n" for n in range(10_000)))
        assert ottla(bootstrap, "consume", "events", "--group", "g", "--count", "5")
        running = json_lines(fresh_node.data)
        assert running[-1]["problems"] == []
        assert fresh_node.stop() == 0
        lines = json_lines(fresh_node.data)
        assert lines[0]["last_stop"] == "clean"
        assert lines[-1]["problems"] == []
        rows = {line["partition"]: line for line in lines if line["kind"] == "partition"}
        assert sum(rows[f"events-{number}"]["records"] for number in (0, 1)) == 10_000
        assert sum(rows[f"events-{number}"]["segments"] for number in (0, 1)) > 4
        metadata = ottla("", "log", "dump", "--records", str(fresh_node.data / "__cluster_metadata-0"))
        assert '"name": "events"' in metadata
        with fresh_node:
            assert len(records(fresh_node.bootstrap, "events")) == 10_000

    def test_a_directory_in_use_is_refused(self, fresh_node: NodeProcess) -> None:
        error = ottla("", "server", "start", str(fresh_node.data), "--listen", "127.0.0.1:0", code=1)
        assert error.startswith("ottla: ") and str(fresh_node.data) in error and "Traceback" not in error

    def test_a_port_in_use_is_refused(self, fresh_node: NodeProcess, tmp_path: Path) -> None:
        error = ottla("", "server", "start", str(tmp_path / "other"), "--listen", fresh_node.bootstrap, code=1)
        assert fresh_node.bootstrap in error and "Traceback" not in error

    def test_a_directory_that_cannot_be_made_is_refused(self) -> None:
        error = ottla("", "server", "start", "/proc/nowhere", "--listen", "127.0.0.1:0", code=1)
        assert "/proc/nowhere" in error and "Traceback" not in error


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ottla("", "log", "dump", "--json", str(path)).splitlines()]
