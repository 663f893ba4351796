"""The entry point: starts a node without loading the rest of the command line, and turns mistakes into exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ottla.cli.exits import FAILED, INTERRUPTED, UNREACHABLE, CommandFailed

_CLIENT_ERRORS = ("KafkaException", "KafkaError")
_MEANT_FOR_PEOPLE = ("OttlaError", "CorruptFile")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `exits.py`)."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in argv[: argv.index("--") if "--" in argv else None]
    try:
        code = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except CommandFailed as failure:
        return _complain(str(failure), failure.exit_code, as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has what it wanted. Python would complain once more when it flushes stdout at exit.
        sys.stdout = None
        return FAILED
    except Exception as error:
        return _complain(*_translated(error), as_json)


def _run(argv: list[str]) -> int:
    if argv[:2] == ["server", "start"] and not {"-h", "--help"} & set(argv):
        from ottla.cli.server import start

        return start(argv[2:])
    if argv[:1] == ["__complete"]:
        from ottla.cli.completion import answer

        return answer(argv[1:])
    from ottla.cli.app import run

    return run(argv)


def _translated(error: Exception) -> tuple[str, int]:
    """(a sentence, an exit code) for errors of the node's set-up, of the client library, of the system, and bugs."""
    name = type(error).__name__
    if name in _CLIENT_ERRORS:
        from ottla.cli.client import explain

        sentence, unreachable = explain(error)
        return sentence, UNREACHABLE if unreachable else FAILED
    if name in _MEANT_FOR_PEOPLE:
        return str(error), FAILED
    if os.environ.get("OTTLA_DEBUG"):
        raise error
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time\n  see whether it runs: ottla server status", UNREACHABLE
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error), FAILED
    return f"a mistake in this program: {name}: {error}\n  OTTLA_DEBUG=1 shows where", FAILED


def _complain(sentence: str, code: int, as_json: bool) -> int:
    """On standard error: the sentence, and what to do beneath it; for programs an object a line."""
    if not as_json:
        print(f"ottla: {sentence}", file=sys.stderr)
        return code
    import json

    for each in sentence.split("\nottla: "):
        text, _, hint = each.partition("\n")
        advice = " ".join(hint.split()) or None
        print(json.dumps({"error": text, "hint": advice, "exit_code": code}, ensure_ascii=False), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
