"""`ottla migrate check`: whether a cluster of Apache Kafka can be taken over node by node, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, OK
from ottla.cli.migrate import asking, internal_records
from ottla.cli.migrate.finding import FINE, LOOK, STOPS, Finding
from ottla.cli.migrate.findings import findings
from ottla.cli.migrate.order import Step, steps
from ottla.cli.migrate.survey import Survey
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.cli.values import Count, FilePath

RECORDS = 1_000_000
SHOWN_MAX = 5
"""Names that a finding shows; --json has all."""
_HEADS = {STOPS: "stops the migration", LOOK: "look at", FINE: "fine"}

ControllerFile = Annotated[
    FilePath | None,
    Parameter(
        name="--controller-config",
        help="The client's settings for the listeners of controllers, where they differ from those of --config.",
    ),
]


def check(
    *,
    records: Count = RECORDS,
    controller_config: ControllerFile = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Say whether a cluster of Apache Kafka 4 (or 3.9 with KRaft) can become Ottla node by node. Nothing is changed.

    The findings come by weight, each with what to do: what stops it, what to look at, what is fine. Then the plan: the
    order of nodes, and what waits while each is away. Exit code 0 if nothing stops it, 1 otherwise.

    Parameters
    ----------
    records
        Records of the internal topics that are read at most; 0 reads none.
    """
    surveyed = asking.survey(
        bootstrap, None if controller_config is None else client_security.of_file(controller_config)
    )
    if records:
        surveyed = replace(surveyed, records=internal_records.read(bootstrap, surveyed.partitions, records))
    found, plan = findings(surveyed), steps(surveyed)
    stopped = any(each.weight == STOPS for each in found)
    if json:
        print_json(
            {
                "cluster_id": surveyed.cluster_id,
                "possible": not stopped,
                "findings": [each.as_json() for each in found],
                "plan": [each.as_json() for each in plan],
            }
        )
    else:
        show(found)
        print()
        show_plan(surveyed, plan)
    return FAILED if stopped else OK


def show(found: Sequence[Finding], weights: Sequence[str] = (STOPS, LOOK, FINE)) -> None:
    for weight in weights:
        those = [each for each in found if each.weight == weight]
        if not those:
            continue
        print(bold(f"{_HEADS[weight]}:"))
        for each in those:
            print(f"  {each.code}: {each.what}")
            if each.where:
                more = len(each.where) - SHOWN_MAX
                print(f"    {', '.join(each.where[:SHOWN_MAX])}{f' and {more:,} more' if more > 0 else ''}")
            if each.todo:
                print(f"    -> {each.todo}")


def show_plan(surveyed: Survey, plan: Sequence[Step]) -> None:
    print(bold(f"plan for {surveyed.cluster_id}: {plural(len(plan), 'node')}, one after the other"))
    print_table(
        ("NODE>", "ROLE", "RACK", "NOW", "LEADS>", "REFUSE WRITES>", "AWAY>"),
        [
            (
                each.node.id,
                f"{each.node.role}{', active' if each.is_active else ''}",
                each.node.rack or "-",
                each.node.kind or "?",
                each.leads,
                each.refuse_writes,
                each.away,
            )
            for each in plan
        ],
        indent=2,
    )
