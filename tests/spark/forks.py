"""Python workers of Spark that are there at once: each is forked from a process that has imported what they import.

Spark starts a Python for each query, planner and daemon; most of what those cost in the tests is imports. `python()`
gives the program to name in `PYSPARK_PYTHON`: it asks a server for a fork that has its descriptors, environment and
arguments, passes a SIGTERM on and ends as the fork ends; a fork is killed when its program is. That a worker of a
Python of its own finds and imports all is seen where drivers and clusters run (`test_standalone.py`,
`test_pipeline_command.py`, `test_kills.py`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = (
    "numpy", "pandas", "pyarrow", "pyarrow.compute", "pyspark.worker", "pyspark.sql.connect.conversion",
    "pyspark.sql.streaming.python_streaming_source_runner", "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner", "pyspark.sql.worker.commit_data_source_write",
    "ottla.spark.datasource", "ottla.spark.exactly_once", "ottla.spark.sink", "ottla.spark.stream",
)  # fmt: skip

_PROGRAM = """#!{python} -ISE
import _signal, _socket, marshal, os, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
order = marshal.dumps((sys.argv[2:], dict(os.environ), os.getcwd()))
lent = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([len(order).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, lent)])
server.sendall(order)
pid = int.from_bytes(server.recv(4), "big")
_signal.signal(_signal.SIGTERM, lambda *_: os.kill(pid, _signal.SIGTERM))
os.closerange(0, 3)
os._exit((server.recv(1) or b"\\1")[0])
"""


@contextlib.contextmanager
def python(directory: Path) -> Iterator[str]:
    """A program that does what this Python does, for modules faster."""
    if not hasattr(os, "pidfd_open"):
        yield sys.executable
        return
    address, program = directory / "forks", directory / "python"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.forks", str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")},  # as Spark's workers
        )
    program.write_text(_PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    try:
        yield str(program)
    finally:
        server.kill()
        server.wait()


def _serve(listener: socket.socket) -> None:
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a fork's collector would touch, and so copy, all that was loaded
    looks = selectors.DefaultSelector()
    looks.register(listener, selectors.EVENT_READ)
    forks: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in looks.select():
            if key.fileobj is listener:
                program, _ = listener.accept()
                pid = _forked(program, [listener.fileno(), looks.fileno(), *forks, *_fds(forks)])
                ended = os.pidfd_open(pid)
                forks[ended] = pid, program
                looks.register(ended, selectors.EVENT_READ)
                looks.register(program, selectors.EVENT_READ, ended)
            elif isinstance(key.fileobj, int):  # a fork has ended
                pid, program = forks.pop(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):
                    program.send(bytes([code if code >= 0 else 128 - code]))
                for each in (key.fd, program):
                    with contextlib.suppress(KeyError):
                        looks.unregister(each)
                os.close(key.fd)
                program.close()
            else:  # its program was killed
                looks.unregister(key.fileobj)
                signal.pidfd_send_signal(key.data, signal.SIGKILL)


def _fds(forks: dict[int, tuple[int, socket.socket]]) -> list[int]:
    return [program.fileno() for _, program in forks.values()]


def _forked(program: socket.socket, of_server: Sequence[int]) -> int:
    head, lent, _, _ = socket.recv_fds(program, 4, 3)
    order = program.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    pid = os.fork()
    if not pid:
        for fd in (*of_server, program.fileno()):
            os.close(fd)
        _run(marshal.loads(order), lent)
    for fd in lent:
        os.close(fd)
    program.sendall(pid.to_bytes(4, "big"))
    return pid


def _run(order: tuple[list[str], dict[str, str], str], lent: Sequence[int]) -> None:
    code = 1
    try:
        for number, fd in enumerate(lent):
            os.dup2(fd, number)
            os.close(fd)
        arguments, environment, directory = order
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        os.chdir(directory)
        module, sys.argv = arguments[0], arguments
        sys.path[1:1] = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
        sys.modules.pop(module, None)  # it is the program now
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
