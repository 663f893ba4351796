"""`ottla tail`: the agent of log aggregation. What it does is in `ottla.tail`."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ottla.cli import client, interrupts
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import human_bytes, plural, print_json, visible
from ottla.cli.status_line import StatusLine
from ottla.cli.values import FilePath, LineBytes, Raw, Seconds, TopicName

if TYPE_CHECKING:
    from ottla.tail.agent import Options

LAST_S = 5.0
"""How long what is on its way is waited for after a signal."""
OVERHEAD_BYTES = 4096
"""Room for headers beside the longest line in a record."""
QUEUE = {"linger.ms": 20, "compression.codec": "lz4", "queue.buffering.max.messages": 100_000, "batch.size": 1_000_000}


def tail(
    *files: Annotated[Raw, Parameter(allow_leading_hyphen=True)],
    to: TopicName,
    id: Raw | None = None,
    host: Raw | None = None,
    key: Literal["host", "file", "none"] = "host",
    format: Literal["lines", "json"] = "lines",
    start_at: Annotated[Literal["beginning", "end"], Parameter(name="--from")] = "beginning",
    once: Flag = False,
    multiline_start: Raw | None = None,
    flush_after: Seconds = 5.0,
    max_line_bytes: LineBytes = 900_000,
    delivery: Literal["at-least-once", "exactly-once"] = "at-least-once",
    state: Annotated[FilePath | None, Parameter(allow_leading_hyphen=True)] = None,
    positions_topic: TopicName = "ottla-tail-positions",
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Send the lines of files to a topic, and keep sending lines that are added.

    Files are followed through rotation (renamed and recreated, or copied and truncated) and deletion. The position in
    each file is stored, and a restarted agent resumes there, even after kill -9. While no broker answers, reading
    pauses.

    Parameters
    ----------
    files
        Files, or patterns such as '/var/log/nginx/*.log' (quoted: new files are found then); - is standard input.
    to
        The topic.
    id
        This agent's name, under which positions are stored. Default: made from the host and the topic.
    host
        Name of the host in the records. Default: this machine's.
    key
        The records' key: the host, the file, or none.
    format
        The value: the line, or a JSON object of host, file, offset, line and time.
    start_at
        Where to start in files that exist at the first start; later files are always sent from their beginning.
    once
        Exit at the end of the files.
    multiline_start
        A line that matches this regular expression starts a record; other lines are added to the record before.
    flush_after
        Seconds until a multiline record that may continue, or an unfinished last line of a rotated file, is sent as is.
    max_line_bytes
        Longer lines are split into several records, all but the last with the header partial=true.
    delivery
        at-least-once: positions are kept in a file, and after a crash some lines are sent again. exactly-once:
        positions are kept in a topic, written in one transaction with the lines.
    state
        File of the positions for at-least-once. Default: a file in ~/.local/state/ottla/tail.
    positions_topic
        Topic of the positions for exactly-once, created compacted if missing.
    """
    from ottla.tail.agent import Options

    _check(files)
    host = _utf8(host or socket.gethostname(), "--host")
    name = _utf8(id or f"{host}-{to}", "--id")
    limit = _line_limit(bootstrap, to, max_line_bytes)
    options = Options(
        files, host, key, format == "json", start_at == "end", once, limit, _pattern(multiline_start), flush_after
    )
    return _run(options, to, lambda: _sink(delivery, to, name, state, positions_topic, bootstrap), json)


def _check(files: tuple[str, ...]) -> None:
    if not files:
        raise CommandFailed("ottla tail needs files, patterns, or - for standard input", MISUSED)
    options_meant = [each for each in files if each.startswith("-") and each != "-"]
    if options_meant:
        raise CommandFailed(
            f"unknown option: {options_meant[0]}\n  see: ottla tail --help (a file of that name is ./NAME)", MISUSED
        )


def _run(options: Options, topic: str, open_sink: Callable[[], Any], as_json: bool) -> int:
    from ottla.tail.agent import Agent
    from ottla.tail.state import TailError

    code, agent, left = OK, None, 0
    try:
        with interrupts.held(), StatusLine() as line:
            sink = open_sink()
            agent = Agent(options, sink, _warn, line.show)
            failed = True
            try:
                agent.run(interrupts.ending)
                failed = False
            finally:
                left = sink.close(0 if failed else LAST_S if interrupts.ending() else None)
    except TailError as error:
        raise CommandFailed(visible(str(error)), UNREACHABLE if error.is_unreachable else 1) from None
    except interrupts.Interrupted:
        code = interrupts.code_of_end()
    return OK if agent is None else _conclude(agent, topic, left, as_json) or code


def _conclude(agent: Any, topic: str, left: int, as_json: bool) -> int:
    """Prints what was sent."""
    stored = agent.sink.committed
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": stored,
                "bytes": agent.bytes_read,
                "files": agent.files_seen,
                "truncations": agent.truncations,
                "unacknowledged": left,
            }
        )
    else:
        size = human_bytes(agent.bytes_read)
        print(f"{plural(stored, 'line')} ({size}) of {plural(agent.files_seen, 'file')} to {topic}")
    if left:
        _warn(f"{plural(left, 'line')} not acknowledged: they are sent again at the next start")
    return OK


def _warn(sentence: str) -> None:
    print(f"ottla: {visible(sentence)}", file=sys.stderr)


def _utf8(text: str, option: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CommandFailed(f"{option} must be UTF-8 text, not {text!r}", MISUSED) from None
    return text


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(os.fsencode(text))
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise CommandFailed(f"--multiline-start must be a regular expression, not {text!r}: {error}", MISUSED) from None


def _line_limit(bootstrap: str, topic: str, wanted: int) -> int:
    from ottla.cli.wire import topic_setting

    limit = topic_setting(bootstrap, topic, "max.message.bytes")
    return wanted if limit is None else max(16, min(wanted, int(limit) - OVERHEAD_BYTES))


def _sink(delivery: str, topic: str, name: str, state: Path | None, positions_topic: str, bootstrap: str) -> Any:
    from ottla.tail.sinks import AtLeastOnce, ExactlyOnce
    from ottla.tail.state import StateFile

    def opening(kind: Callable[[str, Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        extra = QUEUE if kind is client.producer else {}
        return lambda settings: kind(bootstrap, {**extra, **settings})

    if delivery == "at-least-once":
        return AtLeastOnce(topic, StateFile(state or _state_file(name)), opening(client.producer))
    _ensure_positions_topic(bootstrap, positions_topic)
    return ExactlyOnce(topic, positions_topic, name, opening(client.producer), opening(client.consumer))


def _state_file(name: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "ottla" / "tail" / f"{re.sub(r'[^0-9A-Za-z._-]', '_', name)}.json"


def _ensure_positions_topic(bootstrap: str, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    admin = client.admin_client(bootstrap)
    new = NewTopic(topic, num_partitions=1, replication_factor=-1, config={"cleanup.policy": "compact"})
    try:
        client.wait(admin.create_topics([new])[topic])
    except KafkaException as error:
        if client.error_of(error).name() != "TOPIC_ALREADY_EXISTS":
            sentence, unreachable = client.explain(error, f"topic {topic!r}: ")
            raise CommandFailed(sentence, UNREACHABLE if unreachable else 1) from None
