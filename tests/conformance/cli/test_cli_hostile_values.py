"""Every option and argument of every command with values that nobody should give it, against a node.

The commands come from the application itself, so that a new one is driven too; what a valid call of it looks like has
to be said in `VALID`. `OTTLA_TEST_HOSTILE=all`, as in `make nightly`, gives every value to every option (some minutes);
otherwise a sample of the seed in OTTLA_TEST_SEED: whole where a type of option is met first, which is read by the same
code wherever it is met; three values where the name is another, one where another command has had name and type.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.config.server import from_environment
from ottla.security.audit import Chain
from tests.conformance.cli.commands import Commands, arguments_of, ensure_decent, every_command, is_flag, pool
from tests.conformance.cli.dead_letter import leave_a_dead_letter

SEED = int(os.environ.get("OTTLA_TEST_SEED", "8"))
EVERYTHING = os.environ.get("OTTLA_TEST_HOSTILE") == "all"
SAMPLE = 2
"""Values beside `ALWAYS` for each type of option, and of `ALWAYS` for each name that has a type which was met."""

ALWAYS = ("", "-1", "\udcff\udcfe", "99999999999999999999")
SOMETIMES = (
    " ", "0", "-", "--", "=", "a=", "=b", "a=b", "a=\udcff", "\udcff=a", ":", ":9092", "host:0", "[::1", "::1:1",
    "[::1]:99999",
    "x" * 100_000, "9" * 5000, "\x1b[31mred\x07", "two\nlines", "é日本", ".", "..", "/", "/dev/null", "/proc/1/mem",
    "nan", "inf", "1e999", "-0", "0x10", "１２", "1_000", "32768", "2147483648", "9223372036854775808", "1000000",
    "{", "{value", "{value:nope}", "{header.\udcff}", "%s%n%p", "\\", "orders:", "orders:a", "orders:-1,99999999999",
    "0001-01-01", "9999-12-31T23:59:59", "2026-99-99", "99999999d", "99999999999999999999d", "20000d", "None", "--help",
    "a" * 64 + ".b:1", "PLAINTEXT://", "SSL://127.0.0.1:1", ",", "127.0.0.1:1,,\udcff:1",
)  # fmt: skip

DIRECTORIES = ("/", "..", ".")
"""A node would start there."""

VALID: dict[str, list[str]] = {
    "server start": ["data", "--listen", "127.0.0.1:0"],
    "dev": ["--no-registry", "--port", "0", "--http-port", "0"],
    "registry": ["--listen", "127.0.0.1:0", "--topic", "schemas"],
    "console": ["--listen", "127.0.0.1:0"],
    "schema list": [],
    "schema show": ["t-value"],
    "schema check": ["t-value", "t.avsc"],
    "schema register": ["registered-value", "t.avsc"],
    "schema diff": ["t-value"],
    "server status": [],
    "server health": ["--http", "127.0.0.1:1"],
    "audit verify": ["audit"],
    "audit search": ["audit"],
    "cert show": ["t.pem"],
    "cert renew": ["no-such-directory"],
    "security env": ["no-such-directory"],
    "topic create": ["made", "--if-not-exists"],
    "topic delete": ["gone", "--if-exists"],
    "topic alter": ["t", "--set", "retention.ms=100000000"],
    "topic list": [],
    "topic describe": ["t"],
    "topic explain": ["t"],
    "produce": ["t", "value"],
    "consume": ["t"],
    "tail": ["nothing.log", "--to", "t", "--once", "--state", "tail.json"],
    "sql": ["select count(*) from t"],
    "group list": [],
    "share list": [],
    "share describe": ["shared"],
    "share dead": ["shared", "--dead-topic", "dlq.t"],
    "share redrive": ["shared", "--dead-topic", "dlq.t"],
    "group describe": ["g"],
    "group watch": ["g", "--count", "1"],
    "group reset": ["g", "--to", "end", "--dry-run"],
    "group delete": ["no-such-group", "--if-exists"],
    "txn list": [],
    "txn describe": ["x"],
    "txn hanging": ["t"],
    "txn abort": ["x"],
    "config get": [],
    "config set": ["retention.ms=100000000", "--topic", "t"],
    "config unset": ["retention.bytes", "--topic", "t"],
    "config explain": ["retention.ms"],
    "quota list": [],
    "quota set": ["producer_byte_rate=1e12", "--client-id", "quota-of-nobody"],
    "quota remove": ["consumer_byte_rate", "--client-id", "quota-of-nobody"],
    "acl list": [],
    "acl add": ["alice", "read", "topic:t"],
    "acl remove": ["alice", "read", "topic:t"],
    "acl explain": ["alice", "read", "topic:t"],
    "user list": [],
    "user create": ["alice", "--replace", "--generate"],
    "user delete": ["nobody", "--if-exists"],
    "user disconnect": ["nobody"],
    "client list": [],
    "client disconnect": ["nobody"],
    "token list": [],
    "token create": ["--lifetime", "1h"],
    "token renew": ["AAAAAAAAAAAAAAAAAAAAAQ"],
    "token expire": ["AAAAAAAAAAAAAAAAAAAAAQ"],
    "cluster describe": [],
    "cluster api-versions": [],
    "cluster up": ["1", "cluster", "--port", "0"],
    "cluster add": ["added"],
    "cluster restart": ["--command", "true {id}"],
    "cluster balance": ["--sample", "0.1"],
    "cluster drain": ["1", "--dry-run"],
    "cluster remove": ["77"],
    "topic elect": ["t"],
    "topic replicate": ["t", "--factor", "1", "--dry-run"],
    "check": ["--seconds", "0.5", "--topic", "t"],
    "log dump": ["00000000000000000000.log"],
    "log verify": ["checked"],
    "log repair": ["checked"],
    "log convert": ["checked"],
    "storage format": [
        "formatted",
        "--ignore-formatted",
        "--cluster-id",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "--release-version",
        "4.3",
        "--feature",
        "share.version=2",
    ],
    "storage info": ["formatted"],
    "quorum describe": [],
    "quorum add": ["1", "AAAAAAAAAAAAAAAAAAAAAQ", "CONTROLLER://127.0.0.1:9"],
    "quorum remove": ["1", "AAAAAAAAAAAAAAAAAAAAAQ"],
    "quorum unregister": ["77"],
    "quorum repair": ["checked"],
    "features describe": [],
    "features upgrade": ["--release", "4.4"],
    "features downgrade": ["--feature", "share.version=1", "--dry-run"],
    "spark archive": ["ottla.tar.gz"],
    "mirror status": ["a"],
    "mirror plan": ["a"],
    "migrate check": [],
    "migrate walk": ["--stop", "true", "--start", "true", "--plan"],
    "migrate zookeeper": ["--connect", "127.0.0.1:1", "--execute", "--config", "none.properties"],
    "mirror offsets": ["a", "t"],
    "mirror failover": ["a"],
    "mirror failback": ["a"],
    "pipeline list": ["--directory", "pipelines"],
    "pipeline describe": ["activity"],
    "pipeline run": ["./empty.py", "--once", "--directory", "pipelines"],
    "pipeline status": ["empty", "--directory", "pipelines"],
    "pipeline stop": ["empty", "--directory", "pipelines"],
    "pipeline logs": ["empty", "--directory", "pipelines", "-n", "3"],
    "pipeline feed": ["activity", "-n", "3"],
    "pipeline new": ["mine", "--from", "activity", "--overwrite"],
    "sim": ["--kind", "calm", "--digest"],
    "completion": ["bash"],
}
"""A call of each command that a node accepts; where hostile values have their places, they take those of its words."""

REFUSED = {
    "acl add", "acl explain", "acl list", "acl remove", "cert renew", "cert show", "security env",
    "cluster add", "cluster drain", "cluster remove", "mirror failback", "mirror failover",
    "migrate zookeeper", "mirror offsets", "mirror plan", "mirror status", "pipeline stop",
    "quorum add", "quorum remove", "quorum unregister", "server health", "token create", "token expire", "token list",
    "token renew", "txn abort",
}  # fmt: skip
"""Commands that the only broker of a cluster refuses, or that have nothing to do, or no file to read."""

VARIABLES = {
    "OTTLA_BOOTSTRAP",
    "OTTLA_REGISTRY",
    "OTTLA_DEBUG",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "TERM",
    "LC_ALL",
    "PYTHONIOENCODING",
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    yield from pool(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def env(commands: Commands, bootstrap: str, registry_url: str) -> dict[str, str]:
    """The node, with a topic and a group in it, and a schema registry."""
    furnish(commands, bootstrap)
    return {"OTTLA_BOOTSTRAP": bootstrap, "OTTLA_REGISTRY": registry_url}


def furnish(commands: Commands, bootstrap: str) -> None:
    """Create what the calls of `VALID` name."""
    (commands.directory / "00000000000000000000.log").write_text("")
    assert commands.run("server", "start", "checked", "--listen", "127.0.0.1:0").code == 0
    assert commands.run("storage", "format", *VALID["storage format"]).code == 0
    (commands.directory / "t.avsc").write_text('{"type": "record", "name": "T", "fields": []}')
    (commands.directory / "empty.py").write_text("def build(job): ...\n")
    (commands.directory / "audit" / "node-1").mkdir(parents=True, exist_ok=True)
    line = Chain().seal(0, {"event": "Started"})
    (commands.directory / "audit" / "node-1" / "audit-00000000000000000001.jsonl").write_bytes(line)
    for argv in (
        ["topic", "create", "t", "dlq.t", "--if-not-exists"],
        ["produce", "t", "one", "two", "three"],
        ["consume", "t", "--group", "g"],
        ["pipeline", "run", *VALID["pipeline run"]],
    ):
        ended = commands.wait(commands.start(*argv, env={"OTTLA_BOOTSTRAP": bootstrap}))
        assert ended.code == 0, ended
    leave_a_dead_letter(bootstrap, "shared", "t", "dlq.t")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(60)


def kind_of(argument: Any) -> str:
    """Name, type and check of an option."""
    return f"{argument.names[0]} {argument.hint} {argument.parameter.validator}"


def type_of(argument: Any) -> str:
    """Type and check of an option, whatever its name."""
    return f"{argument.hint} {argument.parameter.validator}"


@functools.cache
def met_first(key: Callable[[Any], str] = kind_of) -> dict[str, str]:
    """By kind of option, or by its type, the first command that has it."""
    found: dict[str, str] = {}
    for name, app in every_command():
        for argument in arguments_of(app):
            found.setdefault(key(argument), name)
    return found


def values_for(name: str, argument: Any, dice: random.Random) -> tuple[str, ...]:
    """Hostile values for an option. Most where its type is met first: the check of a type is one code for all names."""
    if EVERYTHING:
        return (*ALWAYS, *SOMETIMES)
    if name == met_first(type_of)[type_of(argument)]:
        return (*ALWAYS, *dice.sample(SOMETIMES, SAMPLE))
    if name == met_first()[kind_of(argument)]:
        return (*dice.sample(ALWAYS, SAMPLE), dice.choice(SOMETIMES))
    return (dice.choice((*ALWAYS, *SOMETIMES)),)


def calls(name: str, app: Any, dice: random.Random) -> Iterator[list[str]]:
    """The command with one hostile value, in each of its places."""
    valid = VALID[name]
    words = name.split()
    places = [number for number, word in enumerate(valid) if number == 0 and not word.startswith("-")]
    for argument in arguments_of(app):
        option = argument.names[0]
        if is_flag(argument):
            forms = ([option], [option, option], [f"{option}=\udcff"])
            is_first = EVERYTHING or name == met_first()[kind_of(argument)]
            for form in forms if is_first else (dice.choice(forms),):
                yield [*words, *valid, *form]
            continue
        for value in values_for(name, argument, dice):
            if name in ("server start", "dev", "storage format") and value in DIRECTORIES:
                continue
            if name == "sim" and value not in ALWAYS:  # what is valid plays for minutes
                continue
            if option.startswith("-"):
                yield [*words, *valid, *dice.choice(([option, value], [f"{option}={value}"]))]
            else:
                yield [*words, value, *valid[len(places) :]]
    yield [*words, *valid, "--no-such-option"]
    yield [*words, *valid, *["one-more"] * 3]
    yield [*words, "--help"]
    yield words


def test_every_command_has_a_valid_call() -> None:
    assert {name for name, _ in every_command()} == VALID.keys(), "a command without a row in VALID, or the reverse"


def test_every_value_has_a_type_of_its_own() -> None:
    """No plain text or number: what a value may be is said in `ottla.cli.values`."""
    plain = [
        f"{name} {argument.names[0]}"
        for name, app in every_command()
        for argument in arguments_of(app)
        if not is_flag(argument)
        and not argument.get_choices()
        and not argument.parameter.validator
        and "validator=" not in str(argument.hint)
    ]
    assert not plain


@pytest.mark.parametrize("name", VALID)
def test_no_value_gets_through(name: str, commands: Commands, env: dict[str, str]) -> None:
    app = dict(every_command())[name]
    dice = random.Random(f"{SEED} {name}")
    codes: dict[int, int] = {}
    failures = []
    for argv in calls(name, app, dice):
        how = {} if name == "server start" else {"env": env}
        as_json = dice.random() < 0.3 and "--json" in {each.names[0] for each in arguments_of(app)}
        ended = commands.run(*argv, *(["--json"] if as_json and "--json" not in argv else []), **how)
        # What is found and damaged or not running stands in the output.
        try:
            ensure_decent(ended, told=name not in ("log dump", "server status", "storage info") or not ended.out)
        except AssertionError as wrong:
            failures.append(wrong)
        codes[ended.code] = codes.get(ended.code, 0) + 1
    print(f"seed {SEED}: {name}: {codes}")
    assert not failures, "\n\n".join(map(str, failures))
    assert codes.get(2, 0) >= (3 if EVERYTHING else 2), "what is wrong in the command line is 2"
    assert codes.get(0, 0) >= 1


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_variables(variable: str, commands: Commands, env: dict[str, str]) -> None:
    values = ("", "0", "-5", "\udcff", "dumb", "ascii", "POSIX", "99999999999999")
    for value in values if EVERYTHING else random.Random(f"{SEED} {variable}").sample(values, 3):
        changed = {**env, variable: value}
        for argv in (
            ["topic", "describe", "t"],
            ["topic", "describe", "nö"],
            ["topic", "--help"],
            ["config", "explain", "retention.ms"],
        ):
            ended = commands.run(*argv, env=changed)
            if variable != "OTTLA_DEBUG":
                ensure_decent(ended)


def test_the_issues_own(commands: Commands, env: dict[str, str], tmp_path: Path) -> None:
    """What was found by hand, with its code."""
    found = {
        ("consume", "t", "--group", ""): 2,
        ("topic", "create", "big", "--partitions", "1000000"): 2,
        ("topic", "create", "\udcff"): 2,
        ("consume", "t", "--from", "99999999999999999999d"): 0,
        ("consume", "t", "--count", "-1"): 2,
        ("server", "start", str(tmp_path / "d"), "--set", "num.partitions=0"): 2,
        ("server", "start", str(tmp_path / "d"), "--listen", "127.0.0.1:70000"): 2,
        ("server", "start", "/dev/null"): 1,
        ("topic", "list", "-b", ""): 2,
    }
    for argv, code in found.items():
        ended = commands.run(*argv, env=env)
        ensure_decent(ended)
        assert ended.code == code, ended
    assert (
        json.loads(commands.run("consume", "t", "--count", "2", "--json", env=env).out.splitlines()[-1])["offset"] == 1
    )


def test_what_debugging_advises_works_for_a_node_too(commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("server", "start", str(tmp_path / "d"), "--listen", "127.0.0.1:0", env={"OTTLA_DEBUG": "1"})
    assert ended.code == 0, ended
    assert b"listening on" in ended.out


def test_no_variable_of_commands_is_taken_for_a_setting_of_a_node() -> None:
    names = {name for _, app in every_command() for each in arguments_of(app) for name in each.parameter.env_var or ()}
    assert {"OTTLA_BOOTSTRAP", "OTTLA_REGISTRY", "OTTLA_PIPELINES", "OTTLA_MIRROR_FROM"} <= names
    assert from_environment(dict.fromkeys(names, "1")) == {}
