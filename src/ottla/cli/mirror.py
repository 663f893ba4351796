"""`ottla mirror ...`: how far a mirror is, what offsets mean on the other side, and handing topics over and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from ottla.cli import client_security
from ottla.cli.client_security import ClientFile, SourceFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.interrupts import in_thread
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import print_json, print_table, visible
from ottla.cli.values import Addresses, FilePath, SettingName, Text, TopicName
from ottla.cli.wire import ensure_answer
from ottla.mirror.names import DESTINATION, SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.mirror.carrying import Carry, Change
    from ottla.mirror.mirror import Mirror, Route

app = App(name="mirror", help="Geo-replication: lag, offsets, failover and failback.", sort_key=7)

From = Annotated[
    Addresses | None,
    Parameter(name="--from", env_var="OTTLA_MIRROR_FROM", help="Brokers of the source cluster: HOST:PORT,..."),
]
Name = Annotated[SettingName, Parameter(help="The destination's name, as given to the mirror.")]
Topics = Annotated[Text, Parameter(help="Topics: a regular expression that matches whole names at the source.")]
Groups = Annotated[Text, Parameter(help="Groups: a regular expression that matches whole names.")]
Policy = Annotated[
    Literal["identity", "prefix"],
    Parameter(help="Names of topics at the destination: unchanged, or with the source's name as a prefix."),
]
What = Annotated[
    Text,
    Parameter(
        name="--carry",
        help="What is kept alike beside topics and groups, by commas: acls (or read-acls), quotas, broker-configs, "
        "users.",
    ),
]
Deletions = Annotated[
    Flag,
    Parameter(help="Also remove ACLs, quotas, broker settings and users that the mirror made, when they are gone."),
]
Exclude = Annotated[
    Text,
    Parameter(help="Settings that stay the destination's own: regular expressions for whole names, by commas."),
]
ExcludeUsers = Annotated[
    Text, Parameter(help="Users that are not carried: regular expressions for whole names, by commas.")
]
Controllers = Annotated[
    Addresses | None,
    Parameter(
        name="--from-controllers", env_var="OTTLA_MIRROR_FROM_CONTROLLERS",
        help="Controllers of the source cluster, from which users are read: HOST:PORT,...",
    ),
]  # fmt: skip
ControllersFile = Annotated[
    FilePath | None,
    Parameter(
        name="--from-controllers-config",
        help="The client's settings for these controllers, where their listener wants another protocol or login than "
        "the brokers' does. Nothing of --from-config is added to them.",
    ),
]
NOWHERE: Final = "127.0.0.1:0"
"""Bootstrap address of a source that is not asked."""


@app.command
def status(
    source: SettingName = SOURCE,
    /,
    *,
    from_: From = None,
    from_config: SourceFile = None,
    topics: Topics = ".*",
    policy: Policy = "identity",
    name: Name = DESTINATION,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show the lag of a mirror: records not copied yet, and the age of the oldest.

    Without --from the source is not asked: only what was copied and the owner of each topic are shown. Topics after
    `ottla mirror failover` have the role "owned", and no lag.

    Parameters
    ----------
    source
        The source's name, as given to the mirror.
    """
    with _complaints():
        mirror = _mirror(source, from_, name, bootstrap, topics, ".*", policy)
        _ensure_exists(mirror)
        rows = in_thread(mirror.known if from_ is None else mirror.status)
    if json:
        print_json(rows)
        return OK
    if not rows:
        print(f"the mirror of {source} has no topics{_no_topics(topics, from_)}")
        return OK
    print_table(
        ("TOPIC", "PARTITION>", "MIRROR", "ROLE", "SOURCE END>", "COPIED TO>", "LAG>", "LAG SECONDS>"),
        [[_cell(value) for value in row.values()] for row in rows],
    )
    return OK


@app.command
def plan(
    source: SettingName = SOURCE,
    /,
    *,
    from_: From = None,
    from_config: SourceFile = None,
    topics: Topics = ".*",
    groups: Groups = ".*",
    policy: Policy = "identity",
    carry: What = "",
    deletions: Deletions = False,
    exclude: Exclude = "",
    exclude_users: ExcludeUsers = "",
    from_controllers: Controllers = None,
    from_controllers_config: ControllersFile = None,
    name: Name = DESTINATION,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Say what a mirror would do at the destination before it does it, and what it leaves, with why.

    Give the options that the pipeline gets with --set. Nothing is changed. Topics, groups, ACLs, quotas, settings and
    users that are alike already are not shown. Exit code 1 if the mirror would refuse a topic or a user.

    Parameters
    ----------
    source
        The source's name, as given to the mirror.
    """
    if from_ is None:
        raise CommandFailed("give the source's brokers with --from", MISUSED)
    with _complaints():
        from ottla.mirror.carrying import carry_of
        from ottla.mirror.plan import plan as plan_of

        rules = carry_of(carry, deletions, exclude, exclude_users)
        controllers = from_controllers, from_controllers_config
        mirror = _mirror(source, from_, name, bootstrap, topics, groups, policy, rules, controllers)
        rows = in_thread(partial(plan_of, mirror))
    if json:
        print_json([each.as_json() for each in rows])
    elif rows:
        print_table(
            ("ACTION", "KIND", "NAME", "WHAT"),
            [(each.action, each.kind, visible(each.name), "; ".join(_words(each))) for each in rows],
        )
    else:
        print("nothing to do: both sides are alike, but for records")
    return FAILED if any(each.action == "refuse" for each in rows) else OK


def _words(change: Change) -> Iterator[str]:
    if change.kind not in ("acl", "group") and (change.kind, change.action) != ("user", "leave"):
        for key, value in change.what.items():
            yield f"{visible(key)} {'is reset' if value is None else f'= {visible(str(value))}'}"
    if change.why:
        yield visible(change.why)


@app.command
def offsets(
    source: SettingName,
    topic: TopicName,
    /,
    *,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show which source offsets of a topic map to which destination offsets: a row for each run without gaps.

    Parameters
    ----------
    source
        The source's name, as given to the mirror.
    topic
        Its name at the source.
    """
    with _complaints():
        mirror = _mirror(source, None, "-", bootstrap)
        _ensure_exists(mirror)
        in_thread(mirror.control.load)
    rows = [
        {"partition": at[1], "source": run.source, "destination": run.destination, "records": run.records}
        for at, mapping in sorted(mirror.control.offsets.items())
        if at[0] == topic
        for run in mapping.runs
    ]
    if not any(at[0] == topic for at in mirror.control.offsets):
        raise CommandFailed(f"{topic} is not mirrored from {source}")
    if json:
        print_json(rows)
    else:
        print_table(("PARTITION>", "SOURCE>", "DESTINATION>", "RECORDS>"), [list(row.values()) for row in rows])
    return OK


@app.command
def failover(
    source: SettingName = SOURCE,
    /,
    *,
    from_: From = None,
    from_config: SourceFile = None,
    topics: Topics = ".*",
    groups: Groups = ".*",
    policy: Policy = "identity",
    carry: What = "",
    deletions: Deletions = False,
    exclude: Exclude = "",
    exclude_users: ExcludeUsers = "",
    from_controllers: Controllers = None,
    from_controllers_config: ControllersFile = None,
    name: Name = DESTINATION,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Make the destination the owner of mirrored topics. Stop producers at the source first; this command stops the
    mirror.

    With --from, all records still readable at the source are copied first, and the groups' offsets are translated a
    last time; with the mirror's --carry, so are ACLs, quotas and settings. Omit it if the source is lost: the source is
    then not asked. Prints the offset at which each partition's
    own records begin.

    Parameters
    ----------
    source
        The source's name, as given to the mirror.
    """
    with _complaints():
        from ottla.mirror.carrying import carry_of

        rules = carry_of(carry, deletions, exclude, exclude_users)
        controllers = from_controllers, from_controllers_config
        mirror = _mirror(source, from_, name, bootstrap, topics, groups, policy, rules, controllers)
        _ensure_exists(mirror)
        reach_source = from_ is not None and bool(in_thread(mirror.known))
        cuts = in_thread(partial(mirror.failover, reach_source=reach_source))
    _print_cuts(cuts, json=json)
    return OK


@app.command
def failback(
    source: SettingName = SOURCE,
    /,
    *,
    from_: From = None,
    from_config: SourceFile = None,
    topics: Topics = ".*",
    groups: Groups = ".*",
    unmirrored: FilePath | None = None,
    finish: Flag = False,
    name: Name = DESTINATION,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Copy records written after a failover, and the groups' offsets, back to the old source.

    May be repeated. When producers have stopped, run it once more with --finish: the old source then owns its topics
    again.

    Parameters
    ----------
    source
        The old source's name, as given to the mirror.
    unmirrored
        A file for records, as JSON lines, that the old source has and that were never mirrored.
    finish
        Make the old source the owner of its topics afterwards.
    """
    from ottla.mirror.failback import Failback

    with _complaints():
        mirror = _mirror(source, from_, name, bootstrap, topics, groups)
        _ensure_exists(mirror)
        if not any(row["role"] == "owned" for row in in_thread(mirror.known)):
            raise CommandFailed(f"no topics of {source} have failed over: nothing to fail back")
        if from_ is None:
            raise CommandFailed("give the old source's brokers with --from", MISUSED)

        def move() -> tuple[int, list[dict[str, Any]]]:
            moving = Failback(mirror.route, unmirrored)
            left = moving.prepare()
            (moving.finish if finish else moving.step)()
            return left, moving.back.known()

        left, rows = in_thread(move)
    if json:
        print_json({"unmirrored": left, "finished": finish, "partitions": rows})
        return OK
    print(f"{left:,} records of {source} were never mirrored; they stay at the source")
    print_table(
        ("TOPIC", "PARTITION>", "ROLE", "COPIED TO>"),
        [[_cell(row[column]) for column in ("topic", "partition", "role", "copied_to")] for row in rows],
    )
    return OK


def _ensure_exists(mirror: Mirror) -> None:
    """Raises CommandFailed for a mirror that has never run, with those that have."""
    if in_thread(mirror.exists):
        return
    route = mirror.route
    others = ", ".join(visible(name) for name in in_thread(mirror.others))
    raise CommandFailed(
        f"there is no mirror of {route.source} at {route.destination_bootstrap}; "
        + (
            f"there are mirrors of {others}"
            if others
            else "no mirror has run there (start one with: ottla pipeline run mirror)"
        )
    )


def _no_topics(topics: str, from_: str | None) -> str:
    if from_ is None:
        return " yet: it has copied nothing"
    return ": the source has no topics of its own" + ("" if topics == ".*" else f" that matches {topics}")


def _mirror(
    source: str,
    from_: str | None,
    name: str,
    bootstrap: str,
    topics: str = ".*",
    groups: str = ".*",
    policy: Literal["identity", "prefix"] = "identity",
    carry: Carry | None = None,
    controllers: tuple[str | None, Path | None] = (None, None),
) -> Mirror:
    """Without Spark. Raises CommandFailed where a cluster does not answer."""
    from ottla.client.security import PLAINTEXT
    from ottla.mirror.carrying import Carry
    from ottla.mirror.control_topic import MirrorError
    from ottla.mirror.mirror import Mirror, Route

    try:
        route: Route = Route(
            source,
            from_ or NOWHERE,
            name,
            bootstrap,
            topics,
            groups,
            policy,
            source_security=client_security.of_source() if from_ is not None else PLAINTEXT,
            destination_security=client_security.current(),
            carry=carry or Carry(),
            source_controllers=controllers[0] or "",
            controllers_security=client_security.of_controllers(controllers[1]),
        )
    except MirrorError as error:
        raise CommandFailed(str(error), MISUSED) from None
    ensure_answer(bootstrap)
    if from_ is not None:
        ensure_answer(from_, route.source_security)
    return Mirror(route)


@contextlib.contextmanager
def _complaints() -> Iterator[None]:
    try:
        from ottla.errors import KafkaError
        from ottla.mirror.control_topic import MirrorError
    except ModuleNotFoundError as error:
        raise CommandFailed(f"mirrors need {error.name}: pip install 'ottla[pipelines]'") from None
    try:
        yield
    except (MirrorError, KafkaError) as error:
        raise CommandFailed(str(error)) from None


def _print_cuts(cuts: dict[tuple[str, int], int], *, json: bool) -> None:
    rows = [{"topic": topic, "partition": partition, "begins": cut} for (topic, partition), cut in sorted(cuts.items())]
    if json:
        print_json(rows)
    else:
        print_table(("TOPIC", "PARTITION>", "OWN RECORDS BEGIN>"), [list(row.values()) for row in rows])


def _cell(value: object) -> object:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else value
