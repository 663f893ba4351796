"""`docs/reference/cli.md`, rendered from the commands themselves: `python -m tools.cli_page docs/reference/cli.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import Parameter, cleandoc
from typing import Any

from cyclopts import App

from ottla.cli.app import application
from tools.pages import write_page

_HEAD = """# The command line

This page is rendered from the commands (`python -m tools.cli_page docs/reference/cli.md`).
`ottla COMMAND --help` says the same.

```
ottla server start ./data
ottla topic create payments --partitions 3 --set retention.ms=3600000
tail -F /var/log/dpkg.log | ottla produce payments
ottla produce payments '{"amount": 3}' --key alice --header source=shop
ottla consume payments --from 10m --follow
ottla consume payments --format hex | ottla produce copy --format hex
ottla consume payments --format '{offset} {key} {value:json}'
ottla sql 'select decode(key), count(*) from payments group by all'
ottla sql 'select value.shop, sum(value.amount) from payments group by all' --value-format json --from 7d
ottla group describe billing
ottla group reset billing --to 2h --dry-run
ottla group watch billing
ottla config explain retention.ms --topic payments
ottla topic explain payments
ottla server status ./data
ottla log dump ./data
```

Commands that ask a broker find it by `--bootstrap HOST:PORT,...` (`-b`), else by the environment variable
`OTTLA_BOOTSTRAP`, else at 127.0.0.1:9092. They speak Kafka's protocol and work with any Kafka since 3.3.

Results go to standard output, errors to standard error: one sentence, and beneath it what to do. Repeatable options are
given once per value: `--partition 0 --partition 3`.

| exit code | |
|---|---|
| 0 | done |
| 1 | refused by the broker, not found, damaged (`log`), or input or output failed |
| 2 | a wrong command line, or a wrong setting of `server start`, wherever it was given |
| 3 | no broker answers: retrying may help |
| 130 | interrupted by Ctrl-C; by SIGTERM 143, by SIGHUP 129 |

`server start`, `consume --follow` and `group watch` exit with 0 at these signals. After a signal a command has a few
seconds to leave its group or to receive the last acknowledgements; a second signal ends it immediately.

**For programs.** Every command that prints data has `--json`: one JSON document, on one line unless it goes to a
terminal; `consume`, `sql` and `group watch` print one object per line. An error is then an object on standard error:
`{"error": "...", "hint": "...", "exit_code": 1}`. Without `--json`, output into a pipe or file has no colours, as on
terminals with `NO_COLOR` set.

**Copies, byte for byte.** `ottla consume a --format X | ottla produce b --format X` writes keys, values, headers,
nulls, partitions and timestamps as they were, with X one of `json`, `hex` and `base64` (a timestamp of exactly 0
becomes the time of the copy, as the client library treats it as missing). In `json`, bytes that are not UTF-8 are
base64 under `key_base64` and so on. In `hex` and `base64`, a line is `PARTITION TIMESTAMP KEY VALUE NAME:VALUE...`
separated by tabs, everything but numbers encoded, and `-` for null. `values`, and lines that `produce` reads by
default, are for text: a record that contains a newline becomes two, and a carriage return at the end of a line counts
as part of the line end.

**Lag in time.** The lag of a group in a partition is given in records (from the committed offset to the end) and in
time: **the time since the timestamp of the oldest record that the group has not committed**, 0 when there is none. It
needs no history of commits, so it is right from the first measurement; some exporters (kafka-lag-exporter) estimate it
from past commits instead, and Burrow gives no time. Consequences: where records were deleted or compacted, the oldest
remaining one counts; where only transaction markers or nothing remains, it is 0, though the lag in records counts their
offsets; a timestamp in the future counts as 0, and a record without one as unknown; with
`message.timestamp.type=LogAppendTime` it is the broker's time, otherwise the producer's. A committed offset beyond the
end is a lag of 0. A partition without a committed offset has no known lag.
"""

_EVERYWHERE = ("--bootstrap",)
"""Options that the head of the page explains once."""

_VALUES = {
    "--config": "FILE",
    "--encoder-secret": "FILE",
    "--zookeeper-config": "FILE",
    "--file": "FILE",
    "--interval": "SECONDS",
    "--header": "NAME=VALUE",
    "--listen": "HOST:PORT",
    "--set": "NAME=VALUE",
    "--unset": "NAME",
}


def commands(parent: App | None = None, path: tuple[str, ...] = ("ottla",)) -> Iterator[tuple[str, App]]:
    """(`ottla topic create`, its App) for everything that can be run, in the order of the help."""
    parent = application() if parent is None else parent
    names = [name for name in parent if not name.startswith("-")]
    for name in sorted(names, key=lambda each: (parent[each].sort_key or 0, names.index(each))):
        child = parent[name]
        if child.default_command is None:
            yield from commands(child, (*path, name))
        else:
            yield " ".join((*path, name)), child


def document() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(name, command) for name, command in commands())


def _section(name: str, command: App) -> str:
    arguments = [each for each in command.assemble_argument_collection(parse_docstring=True) if each.show]
    places = [each for each in arguments if not each.names[0].startswith("-")]
    options = [each for each in arguments if each.names[0].startswith("-") and each.names[0] not in _EVERYWHERE]
    usage = " ".join((name, *(_place(each) for each in places), *(["[OPTIONS]"] if options else [])))
    text = cleandoc(str(command.help)).partition("\n\nParameters\n")[0]
    rows = [(each.names[0], each) for each in places] + [(_option(each), each) for each in options]
    table = "".join(f"| `{left}` | {_help(each)} |\n" for left, each in rows)
    return f"\n## {name}\n\n```\n{usage}\n```\n\n{text}\n" + (f"\n| | |\n|---|---|\n{table}" if table else "")


def _place(argument: Any) -> str:
    name = argument.names[0] + ("..." if re.search("list|tuple", str(argument.hint)) else "")
    return name if argument.required else f"[{name}]"


def _option(argument: Any) -> str:
    shown = ", ".join(argument.names)
    if argument.hint is bool:
        return shown
    choices = argument.get_choices()
    value = _VALUES.get(argument.names[0]) or ("N" if "int" in str(argument.hint) else "TEXT")
    return f"{shown} {' / '.join(choices) if choices else value}"


def _help(argument: Any) -> str:
    text = " ".join(str(argument.parameter.help or "").split())
    default = argument.field_info.default
    hidden = argument.parameter.show_default is False or argument.hint is bool or argument.required
    return text if hidden or default in (None, Parameter.empty) else f"{text} Default: `{default}`."


if __name__ == "__main__":
    write_page(document(), sys.argv[1:])
