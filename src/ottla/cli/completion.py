"""`ottla completion`: what a shell may offer at the cursor, and the scripts that make three shells ask for it.

The scripts ask `ottla __complete SHELL WORDS...`, so that what is offered follows the commands by itself, and the names
of topics and groups are those of the running broker.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ottla.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from cyclopts import App

Shell = Literal["bash", "zsh", "fish"]

FILES = ":files"
"""Stands alone: the shell offers its files."""
PATIENCE_S = 0.7
"""How long a broker may take to name its topics."""


class Offer(NamedTuple):
    """A word, and what it means."""

    word: str
    meaning: str = ""


_SCRIPTS = {
    "bash": r"""# ottla completion for bash
_ottla() {
    local IFS=$'\n' offer
    COMPREPLY=()
    for offer in $(ottla __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null); do
        if [[ $offer == :files ]]; then
            compopt -o default
            return
        fi
        COMPREPLY+=("$offer")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -F _ottla ottla
""",
    "zsh": r"""#compdef ottla
_ottla() {
    local -a offers values
    local offer
    offers=("${(@f)$(ottla __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ $offers[1] == :files ]]; then
        _files
        return
    fi
    for offer in $offers; do
        [[ -n $offer ]] && values+=("$offer")
    done
    (( $#values )) && _describe -V ottla values
}
if [[ $funcstack[1] == _ottla ]]; then
    _ottla "$@"
else
    compdef _ottla ottla
fi
""",
    "fish": r"""# ottla completion for fish
function __ottla_complete
    set -l words (commandline -opc)
    set -l offers (ottla __complete fish $words[2..-1] (commandline -ct) 2>/dev/null)
    if test "$offers[1]" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $offers
    end
end
complete -c ottla -f -a '(__ottla_complete)'
""",
}


def completion(shell: Shell, /) -> None:
    """Print a completion script for bash, zsh or fish.

    It completes commands, options and their values, settings, and topics and groups of the broker if one answers.
    For bash: `ottla completion bash > ~/.local/share/bash-completion/completions/ottla`.
    For zsh, into a directory of its `fpath`: `ottla completion zsh > ~/.zsh/completions/_ottla`.
    For fish: `ottla completion fish > ~/.config/fish/completions/ottla.fish`.

    Parameters
    ----------
    shell
        Which.
    """
    print(_SCRIPTS[shell], end="")


def answer(arguments: Sequence[str]) -> int:
    """Answer a completion script: the shell, then the words after `ottla` up to the cursor (bash: its whole line)."""
    if len(arguments) < 2 or arguments[0] not in _SCRIPTS:
        return 0  # a script of another version
    shell = arguments[0]
    words = _split(arguments[1])[1:] if shell == "bash" else list(arguments[1:])
    words = words or [""]
    for offer in offers(words):
        print(_shown(shell, offer, words[-1]))
    return 0


def _split(line: str) -> list[str]:
    """The words of an unfinished line; the last is what is being typed, maybe nothing."""
    for end in ("", "'", '"'):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return [*words, ""] if line[-1:].isspace() and not end else words
    return line.split()


def _shown(shell: str, offer: Offer, current: str) -> str:
    if offer.word == FILES:
        return FILES
    if shell == "zsh":
        word = offer.word.replace("\\", "\\\\").replace(":", "\\:")
        return f"{word}:{offer.meaning}" if offer.meaning else word
    if shell == "fish":
        return f"{offer.word}\t{offer.meaning}"
    # bash takes words apart at = and :, and wants only what follows them.
    return offer.word[max(current.rfind("="), current.rfind(":")) + 1 :]


def offers(words: Sequence[str]) -> list[Offer]:
    """Candidates for the last of `words`."""
    from ottla.cli.app import application

    app, rest = application(words[0] if len(words) > 1 else None), list(words)
    while len(rest) > 1 and app.default_command is None:
        if rest[0] not in list(app):
            return []
        app = app[rest.pop(0)]
    current = rest[-1]
    found = _of_group(app) if app.default_command is None else _of_command(app, rest[:-1], current, words)
    return [each for each in found if each.word.startswith(current) or each.word == FILES]


def _of_group(app: App) -> Iterator[Offer]:
    names = [name for name in app if not name.startswith("-")]
    for name in sorted(names, key=lambda each: (app[each].sort_key or 0, names.index(each))):
        yield Offer(name, _first_sentence(app[name].help))


def _first_sentence(text: Any) -> str:
    return " ".join(str(text).partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _of_command(app: App, before: Sequence[str], current: str, words: Sequence[str]) -> Iterable[Offer]:
    arguments = [each for each in app.assemble_argument_collection(parse_docstring=True) if each.show]
    options = {name: each for each in arguments for name in each.names if name.startswith("-")}
    previous = options.get(before[-1]) if before else None
    if previous is not None and previous.hint is not bool:
        return _values(previous.names[0], previous, words)
    if current.startswith("-"):
        return [
            Offer(each.names[0], _first_sentence(each.parameter.help or ""))
            for each in arguments
            if each.names[0].startswith("-") and (_repeats(each) or not set(each.names) & set(before))
        ]
    places = [each for each in arguments if not each.names[0].startswith("-")]
    typed = _places_typed(before, options)
    if not places or (typed >= len(places) and not _repeats(places[-1])):
        return []
    place = places[min(typed, len(places) - 1)]
    command = " ".join(words[: len(words) - len(before) - 1])
    return _values(f"{command} {place.names[0]}", place, words)


def _places_typed(before: Sequence[str], options: Mapping[str, Any]) -> int:
    count, skip = 0, False
    for word in before:
        if skip:
            skip = False
        elif word in options:
            skip = options[word].hint is not bool
        elif not word.startswith("-"):
            count += 1
    return count


def _repeats(argument: Any) -> bool:
    return any(each in str(argument.hint) for each in ("list", "tuple"))


def _values(name: str, argument: Any, words: Sequence[str]) -> list[Offer]:
    choices = argument.get_choices()
    if choices:
        return [Offer(each) for each in choices]
    kind = _KINDS.get(name)
    if kind is None:
        return []
    if isinstance(kind, tuple):
        return [Offer(each) for each in kind]
    if kind == FILES:
        return [Offer(FILES)]
    if kind in ("topics", "groups", "transactions"):
        return _running(kind, words)
    return _settings(kind, words)


_PLACES = ("beginning", "end")
_KINDS: dict[str, str | tuple[str, ...]] = {
    "--topic": "topics",
    "--group": "groups",
    "--file": FILES,
    "--config": FILES,
    "--zookeeper-config": FILES,
    "--encoder-secret": FILES,
    "--from": _PLACES,
    "--to": _PLACES,
    "--set": "changes",
    "--unset": "settings",
    "--format": ("text", "values", "json", "hex", "base64", "hexdump"),
    "server start DIRECTORY": FILES,
    "server status DIRECTORY": FILES,
    "log dump PATHS": FILES,
    "topic delete TOPICS": "topics",
    "topic alter TOPIC": "topics",
    "topic describe TOPICS": "topics",
    "topic explain TOPICS": "topics",
    "produce TOPIC": "topics",
    "consume TOPIC": "topics",
    "group describe NAMES": "groups",
    "group watch NAMES": "groups",
    "group reset NAME": "groups",
    "group delete NAMES": "groups",
    "txn describe IDS": "transactions",
    "txn abort TRANSACTIONAL_ID": "transactions",
    "txn hanging TOPIC": "topics",
    "config get NAMES": "settings",
    "config unset NAMES": "settings",
    "config explain NAMES": "settings",
    "config set PAIRS": "changes",
}
"""Kinds of values of options and arguments."""


def _settings(kind: str, words: Sequence[str]) -> list[Offer]:
    from ottla.config import definitions

    if "--topic" in words or "-t" in words or words[0] == "topic":
        tables = [definitions.TOPIC]
    elif "--group" in words or "-g" in words:
        tables = [definitions.GROUP]
    elif "--broker" in words or "--all-brokers" in words or words[0] == "server":
        tables = [definitions.BROKER]
    else:
        tables = [definitions.TOPIC, definitions.BROKER, definitions.GROUP]
    known = {name: each for table in tables for name, each in table.items() if not each.internal}
    ending = "=" if kind == "changes" else ""
    return [Offer(name + ending, _first_sentence(each.doc)) for name, each in sorted(known.items())]


def _running(kind: str, words: Sequence[str]) -> list[Offer]:
    """Names that a broker knows; none where it does not answer soon."""
    from ottla.cli import client_security, wire
    from ottla.cli.exits import CommandFailed
    from ottla.protocol.messages import ApiKey

    bootstrap, file = os.environ.get("OTTLA_BOOTSTRAP"), None
    for option, value in pairwise(words):
        if option in ("--bootstrap", "-b"):
            bootstrap = value
        elif option in ("--config", "--command-config"):
            file = Path(value)
    values = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    try:
        client_security.use(file)
        bootstrap = bootstrap or client_security.bootstrap_of_file() or DEFAULT_BOOTSTRAP
        metadata = wire.ask(bootstrap, ApiKey.METADATA, values, PATIENCE_S)
        if kind == "topics":
            internal = words[-1].startswith("__")
            names = {each["name"] for each in metadata["topics"] if internal or not each["is_internal"]}
        else:
            names = set()
            for address in wire.broker_addresses(metadata).values():
                with suppress(CommandFailed):  # it is away: the others may have taken over what it had
                    names |= _known_to(address, kind)
    except (CommandFailed, OSError, ValueError):
        return []
    return [Offer(name) for name in sorted(names)]


def _known_to(address: str, kind: str) -> set[str]:
    """The groups or transactional ids that one broker coordinates. Raises CommandFailed."""
    from ottla.cli import wire
    from ottla.protocol.messages import ApiKey

    if kind == "groups":
        listed = wire.ask(address, ApiKey.LIST_GROUPS, {"states_filter": []}, PATIENCE_S)
        return {each["group_id"] for each in listed["groups"]}
    unfiltered: dict[str, list[str]] = {"state_filters": [], "producer_id_filters": []}
    listed = wire.ask(address, ApiKey.LIST_TRANSACTIONS, unfiltered, PATIENCE_S)
    return {each["transactional_id"] for each in listed["transaction_states"]}
