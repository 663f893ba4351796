"""Measure Ottla beside Apache Kafka: the same load, both warm, in alternation; medians, spread and ratios are printed.

    python -m bench page                all tables of docs/performance.md at one commit, 40 minutes (page --help)
    python -m bench produce fetch       some tables
    python -m bench --side ottla ...    only one side, while you work on it
    python -m bench --json FILE ...     keep the results: tables replace those of the same name in FILE
    python -m bench compare BASE        this tree beside another commit of it (compare --help)
    python -m bench.render              write docs/performance.md from docs/performance.json

Each side is under load until its rate is steady, then measured in rounds: Ottla, Kafka, Ottla, Kafka. Use
`--seconds 1 --rounds 1 --quick` to try a table. On a machine with other work rates move: read the spread, and what does
not move (CPU, system calls, instructions).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench import plan, results
from bench.method import before_after, counters, tcp
from bench.method.brokers import SIDES
from bench.method.page_cache import PageCache
from bench.method.steady import Rule
from bench.tables import Run, Table, all_tables
from tools import compiled

QUICK = Rule(windows=2, window_s=0.5, spread_max=1.0, seconds_min=1.0, requests_min=1, seconds_max=2.0)


COMMANDS = ("compare", "page")
"""Instead of tables, as the first argument."""


def arguments_of(
    command_line: list[str], tables: dict[str, Table]
) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """The parsed command line; `revision` is empty unless this tree is compared with one."""
    command = command_line[0] if command_line[:1] and command_line[0] in COMMANDS else ""
    compares = command == "compare"
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {command}".rstrip(),
        description={"": __doc__, "compare": before_after.__doc__, "page": plan.__doc__}[command],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command, revision="", with_kafka=False, side=None)
    if command == "page":
        plan.add_arguments(parser)
        parser.set_defaults(load=[], seconds=0.3, rounds=1)  # of --quick
        arguments = parser.parse_args(command_line[1:])
        if others := set(arguments.steps).difference(step.name for step in plan.STEPS):
            parser.error(f"no step {', '.join(sorted(others))}; there are {', '.join(s.name for s in plan.STEPS)}")
        return arguments, parser
    if compares:
        before_after.add_arguments(parser, tables)
    else:
        names = "\n".join(f"  {each.name:<29}{each.what}" for each in tables.values())
        parser.epilog = f"tables:\n{names}"
        parser.add_argument("tables", nargs="*", metavar="TABLE", help="all tables if none is named, which takes hours")
        parser.add_argument("--side", action="append", choices=list(SIDES), help="measure this side (default: both)")
    parser.add_argument(
        "--load", action="append", default=[], metavar="PART", help="only loads whose name has PART in it"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measured window (3)")
    parser.add_argument("--rounds", type=int, default=3, help="measured windows of each side (3)")
    parser.add_argument("--quick", action="store_true", help="almost no warm-up: to try a table, not to measure")
    parser.add_argument("--directory", type=Path, help="directory of the brokers' data (the temporary directory)")
    parser.add_argument("--json", type=Path, help="file in which results are kept")
    arguments = parser.parse_args(command_line[compares:])
    if arguments.quick and arguments.json and arguments.json.resolve() == plan.RESULTS:
        parser.error("--quick measures nothing that a page may show: name another file with --json")
    known = before_after.COMPARABLE if compares else tuple(tables)
    for name in arguments.tables:
        if name not in known:
            parser.error(f"no table {name!r}; there are {', '.join(known)}")
    arguments.tables = arguments.tables or (before_after.DEFAULT if compares else tuple(tables))
    return arguments, parser


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles its sources, which an installation did
    tables = all_tables()
    arguments, parser = arguments_of(sys.argv[1:], tables)
    if old := compiled.stale():
        parser.error(f"compiled before the last change of their sources: {', '.join(old)}; run `make setup`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # brokers are stopped, directories deleted
    with (
        tcp.default_congestion_control(),
        tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.directory) as base,
    ):
        print(f"{results.machine()}; commit {results.commit()}", flush=True)
        run = Run(arguments.side or list(SIDES), arguments.seconds, arguments.rounds, Path(base), parts=arguments.load)
        if arguments.quick:
            run.rule, run.first_warm_up_s = QUICK, 0.0
        else:
            run.page_cache = PageCache(run.base)
        if arguments.command == "page":
            plan.make_page(arguments, parser, run, tables)
        else:
            make_tables(arguments, parser, run, tables)


def make_tables(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, run: Run, tables: dict[str, Table]
) -> None:
    """The named tables one after the other, this tree beside another commit if one is named."""
    kept = results.Results.read(arguments.json) if arguments.json else results.Results()
    tree = None
    if arguments.revision:
        try:
            tree = before_after.prepare(run, arguments.revision, arguments.with_kafka, quick=arguments.quick)
        except ValueError as error:
            parser.error(str(error))
        print(f"base: {tree}", flush=True)
    failed = []
    try:
        for name in arguments.tables:
            begin = time.monotonic()
            run.busy_cores = counters.busy_cores()
            try:
                for section in tables[name].make(run):
                    table = name
                    if tree is not None:
                        table, section = before_after.TABLE, before_after.section_of(section, tree)
                    print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                    kept.add(table, section, run)
                    if arguments.json:
                        kept.write(arguments.json)
            except Exception:  # the tables that took minutes before are kept, the others are made
                traceback.print_exc()
                failed.append(name)
                run.cool()
            print(f"({name}: {time.monotonic() - begin:.0f} s)", flush=True)
    finally:
        run.cool()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
