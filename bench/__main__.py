"""Run Ottla and Apache Kafka under the same load, warm, in alternation, and print medians, spread and ratios.

    python -m bench                     every table, about twenty minutes
    python -m bench produce fetch       some of them
    python -m bench --side ottla ...    one side only, while working on it
    python -m bench --json FILE         keep the results; tables that FILE has already are replaced, others stay
    python -m bench compare BASE        this tree beside another commit of it (--help says more)
    python -m bench.render              write docs/performance.md and README.md from docs/performance.json

Every side is warmed until its rate is steady, then measured in rounds A B A B; --seconds 1 --rounds 1 --quick is for
trying out. Figures on a shared machine move: read the spread, and what does not move (CPU, system calls, instructions).
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

from bench import before_after, results
from bench.brokers import SIDES
from bench.steady import Rule
from bench.tables import Run, Table, all_tables
from tools import compiled

QUICK = Rule(windows=2, window_s=0.5, spread_max=1.0, seconds_min=1.0, requests_min=1, seconds_max=2.0)


def arguments_of(
    command_line: list[str], tables: dict[str, Table]
) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """What the command was asked for; `revision` is empty unless it is to compare with one."""
    compares = command_line[:1] == ["compare"]
    parser = argparse.ArgumentParser(
        prog="python -m bench" + " compare" * compares,
        description=before_after.__doc__ if compares else __doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if compares:
        before_after.add_arguments(parser, tables)
        parser.set_defaults(side=None)
    else:
        names = "\n".join(f"  {each.name:<21}{each.what}" for each in tables.values())
        parser.epilog = f"tables:\n{names}"
        parser.add_argument("tables", nargs="*", metavar="TABLE", help="all, if none is named")
        parser.add_argument("--side", action="append", choices=list(SIDES))
        parser.set_defaults(revision="", with_kafka=False)
    parser.add_argument("--load", action="append", default=[], metavar="PART", help="of a name: only such loads")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a measured window (3)")
    parser.add_argument("--rounds", type=int, default=3, help="measured windows of each side (3)")
    parser.add_argument("--quick", action="store_true", help="hardly any warm-up: to try a table, not to measure")
    parser.add_argument("--directory", type=Path, help="where data goes (default: the temporary directory)")
    parser.add_argument("--json", type=Path, help="where results are kept")
    arguments = parser.parse_args(command_line[compares:])
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
    kept = results.Results.read(arguments.json) if arguments.json else results.Results()
    if old := compiled.stale():
        parser.error(f"run `make setup`: compiled before the last change were {', '.join(old)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # brokers are stopped, directories deleted
    print(f"{results.machine()}; commit {results.commit()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.directory) as base:
        run = Run(arguments.side or list(SIDES), arguments.seconds, arguments.rounds, Path(base), parts=arguments.load)
        tree = None
        if arguments.revision:
            try:
                tree = before_after.prepare(run, arguments.revision, arguments.with_kafka)
            except ValueError as error:
                parser.error(str(error))
            print(f"base: {tree}", flush=True)
        if arguments.quick:
            run.rule, run.first_warm_up_s = QUICK, 0.0
        failed = []
        try:
            for name in arguments.tables:
                begin = time.monotonic()
                try:
                    for section in tables[name].make(run):
                        table = name
                        if tree is not None:
                            table, section = before_after.TABLE, before_after.section_of(section, tree)
                        print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                        kept.add(table, section, run)
                        if arguments.json:
                            kept.write(arguments.json)
                except Exception:  # the tables that took minutes before are kept, those behind are made
                    traceback.print_exc()
                    failed.append(name)
                    run.cool()
                print(f"({name}: {time.monotonic() - begin:.0f} s)", flush=True)
        finally:
            run.cool()
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")


if __name__ == "__main__":
    main()
