"""The same command of a tool to Ottla and to Apache Kafka: what it prints must be equal but for what names a broker."""

from __future__ import annotations

import re

from tests.conformance.shell import Printed, Shell

_OF_ONE_BROKER = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(TopicId|topicId|ClusterId|DirectoryId)(:\s*)\S+"), r"\1\2ID"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "BROKER"),
    # Tools pad their columns to the longest value.
    (re.compile(r"[ \t]+"), " "),
]
READS = frozenset(("--describe", "--list"))
BEHIND_MAX = 20
"""Times that a tool reads again: Kafka's broker shows a moment later what its controller has answered."""
_NOISE = re.compile(r"^(ended|Shell\$Ended: ended|\s+at |.*KIP-848|\[\d{4}-)")


def comparable(text: str) -> list[str]:
    """The lines of an output, without ids and addresses, and sorted: Kafka's tools print in the order of hash maps."""
    for pattern, instead in _OF_ONE_BROKER:
        text = pattern.sub(instead, text)
    return sorted(line.strip() for line in text.splitlines() if line.strip() and not _NOISE.match(line))


class Twins:
    """`same` runs a tool against both and returns what it printed for Ottla."""

    def __init__(self, shell: Shell, ottla: str, kafka: str) -> None:
        self.shell, self.ottla, self.kafka = shell, ottla, kafka

    def both(self, name: str, *arguments: str, text: str = "") -> tuple[Printed, Printed]:
        mine, theirs = (
            self.shell.run(name, "--bootstrap-server", each, *arguments, text=text, check=False)
            for each in (self.ottla, self.kafka)
        )
        return mine, theirs

    def same(self, name: str, *arguments: str, only: str = "", fails: bool = False, text: str = "") -> str:
        """`only` keeps the lines with this in them, where a broker has more than the test's own."""

        def lines(text: str) -> list[str]:
            return [line for line in comparable(text) if only in line]

        mine, theirs = self.both(name, *arguments, text=text)
        for _ in range(BEHIND_MAX if READS.intersection(arguments) and not fails else 0):
            if lines(mine.out) == lines(theirs.out):
                break
            theirs = self.shell.run(name, "--bootstrap-server", self.kafka, *arguments, text=text, check=False)
        command = f"{name} {' '.join(arguments)}"
        for each in (mine, theirs):
            assert (each.status != 0) is fails, f"{command} ended with {each.status}\n{each.out}\n{each.err}"
        ours, kafkas = lines(mine.out), lines(theirs.out)
        assert ours == kafkas, f"{command}\n{mine.out}\n{theirs.out}"
        # Of a failure's stack only the errors count.
        ours, kafkas = lines(mine.err), lines(theirs.err)
        assert ours == kafkas, f"{command}\n{mine.err}\n{theirs.err}"
        return mine.out
