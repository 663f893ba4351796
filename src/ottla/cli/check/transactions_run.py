"""`ottla check --transactions`: the load, the log at the end, and what is said of both."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ottla.cli import interrupts
from ottla.cli.check.transactions_load import TRANSACTION_MS_MAX, Load, Plan, consumer_settings, value_of
from ottla.cli.output import bold, plural, print_json
from ottla.cli.status_line import StatusLine
from ottla.client.ends import end_offset
from ottla.histories.findings import counts
from ottla.histories.transactions import Finding, History, Kind, Value, findings

__all__ = ["Outcome", "Plan", "check"]

END_S = 60.0
"""How long the last transactions are waited for: far longer than a broker's session and an election take."""
STABLE_S = 3 * TRANSACTION_MS_MAX / 1000
"""How long a partition may make no progress at the end: coordinators check for expired transactions every ten
seconds.
"""
REPORT_S_MAX = 300.0
"""How long after Ctrl-C what was written is read and judged."""
EXAMPLES_MAX = 3


@dataclass
class Outcome:
    """The result of a run."""

    plan: Plan
    load: Load
    wrong: list[Finding]
    interrupted: bool

    @property
    def sound(self) -> bool:
        return all(each.kind.is_allowed for each in self.wrong)

    def report(self, copies: int) -> dict[str, Any]:
        tally = self.load.tally
        return {
            "topic": self.plan.topic,
            "partitions": self.plan.partitions,
            "replication_factor": copies,
            "committed": tally.committed,
            "aborted": tally.aborted,
            "unknown": tally.unknown,
            "failures": dict(sorted(tally.failures.items())),
            "read": tally.read,
            "consumed": tally.consumed,
            "producers_given_up": tally.given_up,
            "found": {kind.name.lower(): count for kind, count in counts(Kind, self.wrong).items()},
            "sound": self.sound,
            "examples": [
                {"kind": each.kind.name.lower(), "partition": each.partition, "what": each.text}
                for each in self.wrong[:100]
            ],
        }

    def show(self, copies: int, *, as_json: bool, kept: bool) -> None:
        report = self.report(copies)
        if as_json:
            print_json(report)
            return
        each = "1 copy" if copies == 1 else f"{copies} copies"
        print(f"{bold(self.plan.topic)}  {plural(self.plan.partitions, 'partition')} with {each} each, in transactions")
        print(
            f"  written  {report['committed']:,} committed, {report['aborted']:,} aborted, "
            f"{report['unknown']:,} with unknown outcome"
        )
        print(f"  read     {report['read']:,} as committed; {report['consumed']:,} consumed in transactions")
        for sentence, count in report["failures"].items():
            print(f"  error    {sentence} ({plural(count, 'time')})")
        for kind in Kind:
            self._show_kind(kind)
        if self.sound:
            print("sound: each transaction is there once and whole, or not at all, and no reader saw part of one")
        else:
            print("NOT SOUND: see above" + ("; the topic is kept for inspection" if kept else ""))

    def _show_kind(self, kind: Kind) -> None:
        some = [each for each in self.wrong if each.kind is kind]
        if not some:
            return
        allowed = "  (allowed)" if kind.is_allowed else ""
        print(f"  {bold(kind.name.lower())}: {len(some):,} {kind.value}{allowed}")
        for each in some[:EXAMPLES_MAX]:
            print(f"    {'' if each.partition < 0 else f'partition {each.partition}: '}{each.text}")
        if len(some) > EXAMPLES_MAX:
            print(f"    and {len(some) - EXAMPLES_MAX:,} more")


def check(plan: Plan, seconds: float, *, fresh: bool) -> Outcome:
    """Run the load and judge it. `fresh`: the topic is new, and everything in it is of this run. Raises
    KafkaException."""
    history = History()
    if not fresh:
        history.starts = _ends(plan)
    load = Load(plan, history)
    interrupted = False
    began = time.monotonic()
    load.start()
    with StatusLine() as line:
        try:
            while (passed := time.monotonic() - began) < seconds:
                tally = load.tally
                line.show(f"{passed:.0f} of {seconds:.0f} s: {tally.committed:,} committed, {tally.read:,} read")
                time.sleep(min(0.25, max(0.0, seconds - passed)))
        except KeyboardInterrupt:
            interrupted = True
            interrupts.allow(REPORT_S_MAX)
        line.show("waiting for the last transactions")
        load.end_writing(END_S)
        line.show("reading the whole log")
        _read_log(plan, history)
        load.end_reading()
    return Outcome(plan, load, findings(history), interrupted)


def _ends(plan: Plan) -> dict[int, int]:
    from confluent_kafka import Consumer

    with closing(Consumer(consumer_settings(plan, f"{plan.topic}-{plan.run}"))) as consumer:
        return {number: end_offset(consumer, plan.topic, number, STABLE_S) for number in range(plan.partitions)}


def _read_log(plan: Plan, history: History) -> None:
    """Read the committed values, each partition with its own reader: a stalled one delays no other."""
    results: dict[int, list[Value] | str] = {}

    def read(number: int) -> None:
        results[number] = _read_partition(plan, number, history.starts.get(number, 0))

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(plan.partitions)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for number, result in sorted(results.items()):
        if isinstance(result, str):
            history.unstable[number] = result
        else:
            history.log[number] = result


def _read_partition(plan: Plan, number: int, start: int) -> list[Value] | str:
    """The values from `start` until everything is stable and read, or why they cannot be read."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {**consumer_settings(plan, f"{plan.topic}-{plan.run}"), "isolation.level": "read_committed"}
    consumer: Consumer = Consumer({**settings, "enable.partition.eof": True})
    place = TopicPartition(plan.topic, number, start)
    found: list[Value] = []
    problem, moved_s, reached = "no answer", time.monotonic(), start
    try:
        consumer.assign([place])
        while time.monotonic() - moved_s < STABLE_S:
            try:
                message = consumer.poll(0.2)
                high = consumer.get_watermark_offsets(place, timeout=5)[1] if message is None or message.error() else -1
            except KafkaException as exception:
                problem = exception.args[0].str()
                time.sleep(0.2)
                continue
            error = None if message is None else message.error()
            if message is not None and error is None:
                moved_s = time.monotonic()
                found.append(value_of(plan.run, message))
            elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
                if int(message.offset() or 0) > reached:
                    reached, moved_s = int(message.offset() or 0), time.monotonic()
                problem = f"stable up to {reached} of {high}"
            elif error is not None:
                problem = error.str()
            if 0 <= high <= reached:
                return found
    finally:
        consumer.close()
    return f"no records received for {STABLE_S:.0f} s, {plural(len(found), 'record')} after the start ({problem})"
