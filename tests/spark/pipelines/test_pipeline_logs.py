"""Log files of three hosts, by three agents of which one is killed, to counts, errors and a table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ottla import arrow
from ottla.pipelines import logs
from tests.spark.pipelines.pipelines import feed, names, rows, run_once

ROOT = Path(__file__).parents[3]
TRACE = b"2026-11-25 09:01:00,123 ERROR [main] Boom\n\tat a.b(C.java:1)\nCaused by: x"
NINE, LATER = "2026-11-25T09:00", "2026-11-25T09:01"
YESTERDAY = datetime.now(UTC) - timedelta(days=1)
"""RFC 3164 has no year: it is the one that makes the line as young as can be."""
LOGS = {
    "web": [
        b'10.0.0.1 - - [25/Nov/2026:09:00:01 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8"',
        b'10.0.0.2 - ada [25/Nov/2026:10:00:02 +0100] "POST /pay HTTP/1.1" 502 0 "-" "x"',
        b'10.0.0.2 - - [25/Nov/2026:09:00:59 +0000] "GET /no HTTP/1.1" 404 0',
    ],
    "db": [
        b"<34>1 2026-11-25T09:00:03.003Z db su - ID47 - 'su root' failed",
        b'<165>1 2026-11-25T09:00:04Z db app 7 ID1 [a@1 k="v"] fine',
        f"{YESTERDAY:%b %d %H:%M:%S} db sshd[42]: Accepted publickey".encode(),
        b"what is this",
    ],
    "app": [
        TRACE,
        b"2026-11-25T09:01:01Z WARNING slow",
        b'{"time": "2026-11-25T09:01:02Z", "level": "info", "message": "hello"}',
        b"\xff\xfe",
    ],
}


def agent(host: str, work: Path, bootstrap: str, topic: str, once: bool = True) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla.cli.main", "tail", str(work / f"{host}.log")]
    command += ["--to", topic, "-b", bootstrap]
    command += ["--host", host, "--id", f"{topic}-{host}", "--delivery", "exactly-once", "--flush-after", "0.2"]
    command += ["--multiline-start", r"^[^\tC]", "--positions-topic", f"{topic}-positions"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command + ["--once"] * once, env=environment, stdout=subprocess.DEVNULL)


def test_log_files_to_counts_errors_and_a_table(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names("input", "counts", "errors")
    topic = settings["input"]
    table = str(tmp_path / "table")
    for host, lines in LOGS.items():
        (tmp_path / f"{host}.log").write_bytes(b"".join(line + b"\n" for line in lines[:2]))
    killed = agent("web", tmp_path, bootstrap, topic, once=False)
    try:
        while not count(bootstrap, topic):
            assert killed.poll() is None
    finally:
        killed.kill()
        killed.wait()
    for host, lines in LOGS.items():
        with (tmp_path / f"{host}.log").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines[2:]))
    for running in [agent(host, tmp_path, bootstrap, topic) for host in LOGS]:
        assert running.wait(60) == 0
    assert count(bootstrap, topic) == sum(map(len, LOGS.values()))
    run_once(spark, "logs", bootstrap, tmp_path / "state", {**settings, "table": table})
    later = YESTERDAY + timedelta(days=2)
    feed(bootstrap, topic, [f"{later:%Y-%m-%d %H:%M:%S} INFO later".encode()])  # ends the windows that were open
    run_once(spark, "logs", bootstrap, tmp_path / "state", {**settings, "table": table})

    counted = rows(bootstrap, settings["counts"])
    found = {(row["start"][:16], row["host"], row["level"]): row["lines"] for row in counted}
    assert len(found) == len(counted)
    assert found == {
        (NINE, "web", "INFO"): 1,
        (NINE, "web", "ERROR"): 1,
        (NINE, "web", "WARN"): 1,
        (NINE, "db", "ERROR"): 1,
        (NINE, "db", "INFO"): 1,
        (f"{YESTERDAY:%Y-%m-%dT%H:%M}", "db", "INFO"): 1,
        (LATER, "app", "ERROR"): 1,
        (LATER, "app", "WARN"): 1,
        (LATER, "app", "INFO"): 1,
    }
    errors = {(row["host"], row["message"].split("\n")[-1]) for row in rows(bootstrap, settings["errors"])}
    assert errors == {("web", "502 POST /pay HTTP/1.1"), ("db", "'su root' failed"), ("app", "Caused by: x")}
    searched = spark.read.parquet(table).collect()
    assert Counter(row["host"] for row in searched) == {"web": 3, "db": 3, "app": 3, "unknown": 1}
    assert spark.read.parquet(table).where("date = '2026-11-25' and host = 'web'").count() == 3
    letters = arrow.read("logs-dead-letters", bootstrap, columns=["value"]).read_all().column("value").to_pylist()
    assert sorted(letters) == [b"what is this", b"\xff\xfe"]


def test_lines_of_json(spark: Any) -> None:
    """The names of other loggers; what is broken, or has no time that can be read, is no line of a log."""
    at = "2026-11-25T09:00:00Z"
    known = [
        (f'{{"ts": "{at}", "severity": "SEVERE", "logger": "shop", "msg": "a"}}', ("ERROR", "shop", "a")),
        (f'{{"@timestamp": "{at}", "level": 30, "message": {{"b": [1]}}, "n": 1}}', ("30", None, '{"b":[1]}')),
        (f'{{"time": null, "timestamp": "{at}", "service": "x"}}', ("INFO", "x", None)),
    ]
    unknown = [f'{{"time": "{at}", "message": "a"', f'{{"time": {{"at": "{at}"}}}}', '{"time": 7}', "{}", "{"]
    lines = [line for line, _ in known] + unknown
    rows = [(None, line.encode(), datetime.now(UTC)) for line in lines]
    found = logs.parsed(spark.createDataFrame(rows, "key BINARY, value BINARY, timestamp TIMESTAMP")).collect()
    by_line = {bytes(row["value"]).decode(): row for row in found}
    for line, expected in known:
        assert (by_line[line]["level"], by_line[line]["program"], by_line[line]["message"]) == expected
        assert by_line[line]["at"] is not None and by_line[line]["format"] == "json"
    assert [by_line[line]["at"] for line in unknown] == [None] * len(unknown)


def count(bootstrap: str, topic: str) -> int:
    try:
        return int(arrow.read(topic, bootstrap, columns=["offset"]).read_all().num_rows)
    except Exception:  # not there yet
        return 0
