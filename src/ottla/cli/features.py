"""`ottla features ...`: the feature levels that the cluster has agreed on, like `kafka-features.sh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import print_json, print_table
from ottla.cli.values import Text
from ottla.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SUPPORTED,
    metadata_version_name,
    metadata_version_of,
    release_levels,
)
from ottla.protocol.messages import ApiKey

app = App(name="features", help="Show, upgrade and downgrade the feature levels of a cluster.", sort_key=7)

TIMEOUT_MS = 30_000
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kinds of changes, as numbered in UpdateFeatures."""

Release = Annotated[Text | None, Parameter(help="The levels of a release, such as 4.4 or 4.4-IV1.")]
Levels = Annotated[
    list[Text] | None,
    Parameter(
        name="--feature", negative="", consume_multiple=False,
        help="A feature and its level as NAME=LEVEL, metadata.version by release too; may be repeated.",
    ),
]  # fmt: skip


@app.command
def describe(
    *, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """Show the level of each feature that the cluster has agreed on, and the highest that this release knows."""
    levels = wire.finalized_features(bootstrap)
    rows = []
    for name in sorted({*levels, *SUPPORTED}):
        level, highest = levels.get(name, 0), SUPPORTED.get(name, (0, None))[1]
        row: dict[str, object] = {"feature": name, "level": level, "highest": highest, "release": None}
        if name == METADATA_VERSION:
            row["release"] = metadata_version_name(level)
        rows.append(row)
    if json:
        print_json(rows)
        return OK
    print_table(
        ("FEATURE", "LEVEL>", "RELEASE", "HIGHEST KNOWN>"),
        [[row[name] for name in ("feature", "level", "release", "highest")] for row in rows],
    )
    return OK


@app.command
def upgrade(
    *,
    release: Release = None,
    feature: Levels = None,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Raise feature levels, once all nodes run a release that supports them. Most can be lowered again, the level of a
    metadata.version that changed records cannot.

    With --release, features that have a higher level already keep it. From 3.9 on kraft.version is among them: with
    level 1 the voters of the quorum can be changed, and there is no way back. A single node without a listener for
    other controllers keeps level 0.

    Parameters
    ----------
    dry_run
        Let the controller check the change without making it.
    """
    levels = wire.finalized_features(bootstrap)
    wanted = _wanted(release, feature, lambda name, level: level > levels.get(name, 0))
    if release is not None and KRAFT_VERSION in wanted and _votes_alone_for_ever(bootstrap):
        del wanted[KRAFT_VERSION]
    return _change(bootstrap, levels, wanted, UPGRADE, dry_run=dry_run, json=json)


@app.command
def downgrade(
    *,
    release: Release = None,
    feature: Levels = None,
    unsafe: Flag = False,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Lower feature levels. A metadata.version is lowered only where no record of the levels between could be lost.

    With --release, features that have a lower level already keep it. kraft.version 1 cannot be lowered: where the
    quorum has it, a downgrade to a release before 3.9 is refused and changes nothing.

    Parameters
    ----------
    unsafe
        Ask for a downgrade that may lose metadata. Controllers refuse it for metadata.version, as Kafka's do.
    dry_run
        Let the controller check the change without making it.
    """
    levels = wire.finalized_features(bootstrap)
    wanted = _wanted(release, feature, lambda name, level: level < levels.get(name, 0))
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    return _change(bootstrap, levels, wanted, kind, dry_run=dry_run, json=json)


def _wanted(release: str | None, feature: Sequence[str] | None, changes: Callable[[str, int], bool]) -> dict[str, int]:
    """Feature to level. Of a release only what `changes`. Raises CommandFailed."""
    if (release is None) == (not feature):
        raise CommandFailed("give either --release or --feature", MISUSED)
    if release is not None:
        found = release_levels(_metadata_version(release))
        return {name: level for name, level in found.items() if changes(name, level)}
    return parse_levels(feature or ())


def _votes_alone_for_ever(bootstrap: str) -> bool:
    """Whether the quorum is one node that other controllers could not reach. It refuses kraft.version 1, and with that
    would refuse the whole release. Apache Kafka has no such nodes."""
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_QUORUM, wire.QUORUM_ASKED)
    rows = [row for topic in answer.get("topics") or () for row in topic["partitions"] if not row["error_code"]]
    return any(
        len(row["current_voters"]) == 1 and [each["listeners"] for each in answer.get("nodes") or ()] == [[]]
        for row in rows
    )


def parse_levels(feature: Sequence[str]) -> dict[str, int]:
    """Feature to level, of `NAME=LEVEL`. Raises CommandFailed."""
    wanted: dict[str, int] = {}
    for each in feature:
        name, equals, text = (part.strip() for part in each.partition("="))
        if not equals or not name:
            raise CommandFailed(f"--feature is NAME=LEVEL, not {each!r}", MISUSED)
        if name in wanted:
            raise CommandFailed(f"--feature: {name} is given twice", MISUSED)
        if text.isascii() and text.isdecimal() and len(text) <= 4:
            wanted[name] = int(text)
        elif name == METADATA_VERSION:
            wanted[name] = _metadata_version(text)
        else:
            raise CommandFailed(f"--feature: the level of {name} is a number, not {text!r}", MISUSED)
    return wanted


def _metadata_version(text: str) -> int:
    level = metadata_version_of(text)
    if level is None:
        first, last = METADATA_VERSIONS[0].name, METADATA_VERSIONS[-1].name
        raise CommandFailed(f"{text!r} is no release from {first} to {last}", MISUSED)
    return level


def _change(
    bootstrap: str, levels: Mapping[str, int], wanted: Mapping[str, int], kind: int, *, dry_run: bool, json: bool
) -> int:
    """All or nothing. Raises CommandFailed with the controller's sentence."""
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level in wanted.items()]
    if updates:
        values = {"timeout": TIMEOUT_MS, "feature_updates": updates, "validate_only": dry_run}
        answer = wire.ask(bootstrap, ApiKey.UPDATE_FEATURES, values)
        for row in (answer, *(answer.get("results") or ())):
            wire.ensure_none(row, "the cluster refused the change")
    rows = [{"feature": name, "before": levels.get(name, 0), "level": level} for name, level in wanted.items()]
    if json:
        print_json({"dry_run": dry_run, "changed": rows})
        return OK
    if not rows:
        print("nothing to change: the cluster has these levels already")
    verb = "would be" if dry_run else "is"
    for each in rows:
        text = {key: _shown(str(each["feature"]), int(str(each[key]))) for key in ("before", "level")}
        print(f"{each['feature']} {verb} {text['level']} (was {text['before']})")
    if any(each["feature"] == KRAFT_VERSION for each in rows) and not dry_run:
        print("  the voters of the quorum can be changed from now on: ottla quorum add, ottla quorum remove")
    return OK


def _shown(name: str, level: int) -> str:
    return f"{level} ({metadata_version_name(level)})" if name == METADATA_VERSION else str(level)
