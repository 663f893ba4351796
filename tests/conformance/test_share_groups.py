"""Share groups with Kafka's own clients and tools, unchanged: the console consumer and ShareGroupCommand."""

from __future__ import annotations

from tests.conformance.shell import Shell
from tests.conformance.test_java_tools import console_produce

COMMAND = "consumer.group.ShareGroupCommand"


def share_consume(shell: Shell, bootstrap: str, group: str, topic: str, count: int, *arguments: str) -> list[str]:
    return shell.run(
        "consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap, "--group", group, "--topic", topic,
        "--max-messages", str(count), "--timeout-ms", "30000", *arguments,
    ).lines()  # fmt: skip


def from_the_start(shell: Shell, bootstrap: str, group: str, **settings: str) -> None:
    settings = {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "5000", **settings}
    changes = ",".join(f"{name}={value}" for name, value in settings.items())
    shell.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", "--group", group,
        "--add-config", changes,
    )  # fmt: skip


def command(shell: Shell, bootstrap: str, *arguments: str) -> list[list[str]]:
    lines = shell.run(COMMAND, "--bootstrap-server", bootstrap, *arguments).lines()
    return [line.split() for line in lines if line.strip()]


def test_a_group_reads_is_shown_reset_and_deleted(shell: Shell, bootstrap: str, topic: str) -> None:
    group = f"share-{topic}"
    console_produce(shell, bootstrap, topic, [f"line {number}" for number in range(20)])
    from_the_start(shell, bootstrap, group)
    assert share_consume(shell, bootstrap, group, topic, 20) == [f"line {number}" for number in range(20)]
    assert [group, "Empty"] in command(shell, bootstrap, "--list", "--state")
    assert lag(shell, bootstrap, group, topic) == "0"
    console_produce(shell, bootstrap, topic, ["one more"])
    assert lag(shell, bootstrap, group, topic) == "1"
    assert share_consume(shell, bootstrap, group, topic, 1) == ["one more"]
    where = ("--group", group, "--topic", topic)
    command(shell, bootstrap, "--reset-offsets", *where, "--to-earliest", "--execute")
    assert lag(shell, bootstrap, group, topic) == "21"
    assert share_consume(shell, bootstrap, group, topic, 2) == ["line 0", "line 1"]
    assert command(shell, bootstrap, "--delete-offsets", *where)[-1] == [topic, "Successful"]
    assert command(shell, bootstrap, "--delete", "--group", group) != []
    assert group not in [row[0] for row in command(shell, bootstrap, "--list")]


def lag(shell: Shell, bootstrap: str, group: str, topic: str) -> str:
    """What is still to be delivered of the topic's one partition."""
    rows = command(shell, bootstrap, "--describe", "--group", group)[1:]
    (row,) = [row for row in rows if row[:3] == [group, topic, "0"]]
    return row[4]
