"""The entry point: starts a node without loading the rest of the command line, and turns errors into exit codes.

What it imports at its top is little, for until `main` has begun a Ctrl-C is answered by Python's traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ottla.cli.exits import FAILED, OK, UNREACHABLE, CommandFailed

_CLIENT_ERRORS = ("KafkaException", "KafkaError")
_MEANT_FOR_PEOPLE = ("OttlaError", "UnsupportedLevel", "CorruptFile", "SecurityFailure", "WrongSecurity")
SENTENCE_CHARACTERS_MAX = 4000
"""Limit of a line of an error message: arguments may be longer than a terminal. Messages of a node name several files
and end with the command to run next, which must stay whole."""

LINE_END = r"\n(?=  |ottla: )"
"""Any other is of a name that somebody gave to something, and shown as an escape."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `exits.py`).

    Without `arguments` as the process that it is: signals and standard streams are taken in hand first.
    """
    if arguments is None:
        argv = sys.argv[1:]
        serves = _starts_a_node(argv)
        _end_at_signals(OK if serves else None)
        from ottla.cli import interrupts, streams

        interrupts.install(OK if serves else None)
        streams.prepare(serves=serves)
        if not serves:
            interrupts.send_again()
    else:
        from ottla.cli import interrupts

        argv = list(arguments)
    try:
        return _ended(argv)
    except KeyboardInterrupt:  # while an error was reported, or the output written
        return interrupts.leave(interrupts.code_of_end())


def _ended(argv: list[str]) -> int:
    """The exit code; an error is told as a sentence. Raises KeyboardInterrupt."""
    from ottla.cli import interrupts

    as_json = "--json" in argv[: argv.index("--") if "--" in argv else None]
    try:
        code = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if _starts_a_node(argv) else interrupts.leave(code)
    except CommandFailed as failure:
        return interrupts.leave(_complain(str(failure), failure.exit_code, as_json))
    except (BrokenPipeError, SystemExit):  # rich makes the one of the other
        # The reader (`head`, say) has what it wanted. Python would complain once more when it flushes stdout at exit.
        sys.stdout = None
        return interrupts.leave(FAILED)
    except Exception as error:
        if interrupts.ending():
            return interrupts.leave(interrupts.code_of_end())
        return interrupts.leave(_complain(*_translated(error, argv), as_json))


def _end_at_signals(code: int | None) -> None:
    """Exit at signals while `interrupts` is not loaded: with 128 + the signal, or `code` for signals that supervisors
    send."""
    import _signal as early  # type: ignore[import-not-found]  # without the imports of `signal`

    for number in (early.SIGINT, early.SIGTERM, early.SIGHUP):
        if early.getsignal(number) != early.SIG_IGN:
            code_of = 128 + number if code is None or number == early.SIGINT else code
            early.signal(number, lambda _, __, code=code_of: os._exit(code))


def _starts_a_node(argv: Sequence[str]) -> bool:
    named = list(argv[:2]) == ["server", "start"] or list(argv[:1]) == ["dev"]
    return named and not {"-h", "--help"} & set(argv)


def _run(argv: list[str]) -> int:
    if _starts_a_node(argv) and argv[0] == "server":
        from ottla.cli.server.start import start

        return start(argv[2:])
    if argv[:1] == ["__complete"]:
        from ottla.cli.completion import answer

        return answer(argv[1:])
    if argv == ["--version"]:
        from ottla.cli.versions import version

        print(version())
        return OK
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    from ottla.cli.app import run

    return run(argv, serves=_starts_a_node(argv))


def _translated(error: Exception, argv: Sequence[str] = ()) -> tuple[str, int]:
    """(a sentence, an exit code) for errors of the node's set-up, of the client library, of the system, and bugs."""
    name = type(error).__name__
    if isinstance(error, ImportError):
        from ottla.cli.extras import missing

        sentence = missing(error, argv[0] if argv else "")
        if sentence is not None:
            return sentence, FAILED
    if name in _CLIENT_ERRORS:
        from ottla.cli.client import explain

        sentence, unreachable = explain(error)
        return sentence, UNREACHABLE if unreachable else FAILED
    if name in _MEANT_FOR_PEOPLE:
        return str(error), FAILED
    if os.environ.get("OTTLA_DEBUG"):
        raise error
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time\n  check it with: ottla server status", UNREACHABLE
    if isinstance(error, OSError):
        return _of_the_system(error), FAILED
    return f"internal error: {name}: {error}\n  this is a bug; for a traceback set OTTLA_DEBUG=1 and try again", FAILED


def _of_the_system(error: OSError) -> str:
    if type(error).__name__ == "OutputFailed":
        sys.stdout = None  # not tried again
        return f"cannot write to standard output: {error.strerror}"
    if type(error).__name__ == "InputFailed":
        return f"cannot read standard input: {error.strerror}\n  is it closed? give VALUES, or files with --file"
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def _complain(sentence: str, code: int, as_json: bool) -> int:
    """Print an error to standard error: the sentence, and the advice beneath it; for programs an object per line."""
    import re  # when there is something to say

    if sys.stderr is None:
        return code
    if not as_json:
        print("\n".join(map(_line, re.split(LINE_END, f"ottla: {sentence}"))), file=sys.stderr)
        return code
    from ottla.cli.output import json_text

    for each in sentence.split("\nottla: "):
        text, *hints = re.split(LINE_END, each)
        hint = " ".join(hints)
        advice = _line(" ".join(hint.split())) or None
        print(json_text({"error": _line(text), "hint": advice, "exit_code": code}, sys.stderr), file=sys.stderr)
    return code


def _line(text: str) -> str:
    """The line as shown on a terminal: without control characters, and limited in length."""
    from ottla.cli.output import visible

    text = visible(text)
    half = SENTENCE_CHARACTERS_MAX // 2
    return text if len(text) <= 2 * half else f"{text[:half]} ... {text[-half:]}"


if __name__ == "__main__":
    sys.exit(main())
