"""The entry point: starts a node without loading the rest of the command line, and turns mistakes into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ottla.cli.exits import FAILED, INTERRUPTED, UNREACHABLE, CommandFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `exits.py`)."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if argv[:2] == ["server", "start"] and not {"-h", "--help"} & set(argv):
            from ottla.cli.server import start

            return start(argv[2:])
        from ottla.cli.app import run

        return run(argv)
    except CommandFailed as failure:
        _complain(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has what it wanted. Python would complain once more when it flushes stdout at exit.
        sys.stdout = None
        return FAILED
    except Exception as error:
        if type(error).__name__ not in ("OttlaError", "KafkaException", "KafkaError"):
            raise
        return _translate(error)


def _translate(error: Exception) -> int:
    """Print an error of the node's set-up or of the client library in a sentence."""
    if type(error).__name__ == "OttlaError":
        _complain(str(error))
        return FAILED
    from ottla.cli.client import explain

    sentence, unreachable = explain(error)
    _complain(sentence)
    return UNREACHABLE if unreachable else FAILED


def _complain(sentence: str) -> None:
    print(f"ottla: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
