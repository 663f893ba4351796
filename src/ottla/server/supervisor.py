"""Several nodes under one process: it forks them, starts again what dies, and stops all of them at one signal.

The nodes are forks of a process that has loaded what a node needs and run nothing of it: they share that memory, and
one that is started again is there in a fraction of the time that a new interpreter takes. The supervisor itself has no
event loop and no threads, because neither survives a fork: it sleeps in `poll` until a signal, a node's end, a node's
word that it serves, or the time to start one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.server.main import run
from ottla.server.service_manager import ServiceManager

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.server.node import Node

RESTART_S = 1.0
"""Seconds from a node's death to its next start."""
RESTART_S_MAX = 30.0
"""The pause doubles up to this while a node dies before it serves."""
OUTPUT_BYTES_MAX = 4096
"""Bytes of a node's output that are shown if it does not start."""
OUTPUT_BYTES_KEPT = 8 << 20
"""Bytes of a node's output; beyond, its file becomes `output.1`, replacing the one before."""
LOOK_S = 60.0
"""Between two looks at the size of these files."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


@dataclass
class Supervised:
    """A node and what has become of it."""

    node_id: int
    config: ServerConfig
    pid_file: str | None = None
    output: str | None = None
    """The file that what it prints is appended to; None for the supervisor's own."""
    first: ServerConfig | None = None
    """The settings of its first process, where these are others."""
    pid: int = 0
    """0 while it is not running."""
    serves: bool = False
    descriptors: list[int] = field(default_factory=list)
    """Descriptors of its process and of the pipe on which it reports that it serves."""
    start_at_s: float | None = None
    pause_s: float = RESTART_S


class Supervisor:
    """`run` returns when all nodes have ended. `say` is told what people want to know; `ready` when all serve. Each of
    `afterwards`, which may take its time, is done by a process of its own."""

    def __init__(
        self,
        nodes: Sequence[Supervised],
        *,
        restart: bool,
        ready: Callable[[], None],
        say: Callable[[str], None],
        afterwards: Sequence[Callable[[], None]] = (),
        manager: ServiceManager | None = None,
    ) -> None:
        self._nodes = list(nodes)
        self._manager = manager or ServiceManager()
        """Hears of all nodes as of one service; the nodes themselves tell it nothing."""
        self._afterwards = list(afterwards)
        self._helpers: list[int] = []
        """Processes that do what comes afterwards."""
        self._restart = restart
        self._ready = ready
        self._say = say
        self._were_ready = False
        self._stopping = False
        self._failed = False
        self._look_at_s = time.monotonic() + LOOK_S
        self._tick_at_s = time.monotonic()
        self._poll = select.poll()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """The exit code: 1 where a node did not start at all. An error of `say` or `ready`, such as of an output that
        is full, is raised when all nodes have ended."""
        self._take_signals()
        self._manager.starting(lambda: f"{sum(each.serves for each in self._nodes)} of {len(self._nodes)} nodes serve")
        gc.collect()
        gc.freeze()  # else the first collection of each node would write to, and so copy, all that they share
        try:
            for node in self._nodes:
                self._start(node)
            self._attend()
        except BaseException:
            # Orphaned nodes end too, but later: until then the directory is in use, and nothing says by whom.
            self._say, self._ready, self._afterwards = _nothing, _nothing, []
            self._stop_all()
            self._attend()
            raise
        return 1 if self._failed else 0

    def _attend(self) -> None:
        """Until all nodes have ended."""
        while any(node.pid for node in self._nodes) or self._due() is not None:
            self._step()

    def _take_signals(self) -> None:
        self._poll.register(self._wake, select.POLLIN)
        signal.set_wakeup_fd(self._woken)
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as by `nohup`
                signal.signal(number, lambda number, frame: None)

    def _step(self) -> None:
        due = self._due()
        next_s = min(self._look_at_s, self._tick_at_s if due is None else min(due, self._tick_at_s))
        timeout_ms = max(0.0, next_s - time.monotonic()) * 1000
        for descriptor, _ in self._poll.poll(timeout_ms):
            if descriptor == self._wake:
                os.read(self._wake, 512)
                self._stop_all()
                continue
            node = next((each for each in self._nodes if descriptor in each.descriptors), None)
            if node is not None:  # else what stood before it in this list was its end
                if descriptor == node.descriptors[0]:
                    self._ended(node)
                else:
                    self._heard(node, descriptor)
        for node in self._nodes:
            if node.start_at_s is not None and node.start_at_s <= time.monotonic():
                self._start(node)
        self._helpers = [each for each in self._helpers if not os.waitpid(each, os.WNOHANG)[0]]
        if self._tick_at_s <= time.monotonic():
            self._tick_at_s = time.monotonic() + self._manager.tick_s
            self._manager.tick()
        if self._look_at_s <= time.monotonic():
            self._look_at_s = time.monotonic() + LOOK_S
            for node in self._nodes:
                if node.output is not None:
                    rotate(node.output)

    def _due(self) -> float | None:
        return min((each.start_at_s for each in self._nodes if each.start_at_s is not None), default=None)

    def _stop_all(self) -> None:
        """Brokers say to a controller that they leave, so nodes that are controllers stop when the others have."""
        if not self._stopping:
            self._manager.stopping()
        self._stopping = True
        self._end_helpers()
        for node in self._nodes:
            node.start_at_s = None
        running = [node for node in self._nodes if node.pid]
        first = [node for node in running if not node.config.is_controller]
        for node in first or running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGCONT)
                os.kill(node.pid, signal.SIGTERM)

    def _end_helpers(self) -> None:
        while self._helpers:
            helper = self._helpers.pop()
            os.kill(helper, signal.SIGKILL)  # it has nothing to bring to an end, and is a zombie if it is done
            os.waitpid(helper, 0)

    def _start(self, node: Supervised) -> None:
        node.start_at_s = None
        sys.stdout.flush()
        sys.stderr.flush()
        heard, said = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            self._be(node, said)
        os.close(said)
        node.pid, node.serves, node.first = pid, False, None
        node.descriptors = [os.pidfd_open(pid), heard]
        for each in node.descriptors:
            self._poll.register(each, select.POLLIN)
        if node.pid_file is not None:
            with open(node.pid_file, "w", encoding="ascii") as file:
                file.write(f"{pid}\n")

    def _heard(self, node: Supervised, descriptor: int) -> None:
        """Handle an event: the node serves, or it is ending."""
        self._poll.unregister(descriptor)
        if not os.read(descriptor, 1):
            return
        node.serves, node.pause_s = True, RESTART_S
        if self._were_ready:
            self._say(f"node {node.node_id} is serving again (process {node.pid})")
        elif all(each.serves for each in self._nodes):
            self._were_ready = True
            self._ready()
            self._manager.ready()
            for work in self._afterwards:
                self._help(work)

    def _help(self, work: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        helper = os.fork()
        if not helper:
            try:
                self._leave_parent()
                work()
            finally:
                os._exit(0)  # what it could not do is left undone
        self._helpers.append(helper)

    def _ended(self, node: Supervised) -> None:
        _, status = os.waitpid(node.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        for each in node.descriptors:
            with contextlib.suppress(KeyError):
                self._poll.unregister(each)
            os.close(each)
        served, node.pid, node.serves, node.descriptors = node.serves, 0, False, []
        if node.pid_file is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(node.pid_file)
        if self._stopping:
            self._stop_all()
            return
        what = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not served and not self._were_ready and code:
            self._failed = True
            self._say(f"node {node.node_id} failed to start ({what})" + self._printed(node))
            self._stop_all()
        elif not self._restart:
            self._say(f"node {node.node_id} has ended ({what}) and is not restarted")
        else:
            pause_s = 0.0 if served and not code else node.pause_s
            if not served:
                node.pause_s = min(RESTART_S_MAX, node.pause_s * 2)
            again = f"it is restarted in {pause_s:g} s" if pause_s else "it is restarted"
            self._say(f"node {node.node_id} has ended ({what}); {again}" + ("" if served else self._printed(node)))
            node.start_at_s = time.monotonic() + pause_s

    def _printed(self, node: Supervised) -> str:
        """The last output of a node that did not start."""
        if node.output is None:
            return ""
        try:
            with open(node.output, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - OUTPUT_BYTES_MAX))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        last = [line for line in lines if line.startswith(("ottla: ", "  "))][-3:] or lines[-3:]
        return "".join(f"\n  {line.removeprefix('ottla: ').strip()}" for line in last) + f"\n  more in {node.output}"

    # The other side of the fork.

    def _be(self, node: Supervised, said: int) -> None:
        """Be the node; does not return."""
        code = 70
        try:
            self._leave_parent()
            if node.output is not None:
                with open(node.output, "ab") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
            code = _run(node.first or node.config, said)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _leave_parent(self) -> None:
        """Take nothing along of the supervisor, and end with it."""
        os.setpgid(0, 0)  # Ctrl-C is for the supervisor, which stops all in its own way
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        for each in [self._wake, self._woken, *(one for other in self._nodes for one in other.descriptors)]:
            os.close(each)


def _nothing(*_: object) -> None:
    pass


def rotate(path: str) -> None:
    """Keep what a node has printed as `path`.1 and let it begin again, if it is much. The node has the file open, to
    append: what it prints between the copy and the cut is lost."""
    try:
        if os.stat(path).st_size > OUTPUT_BYTES_KEPT:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
    except OSError:  # a full disk, or somebody has removed it
        pass


def _run(config: ServerConfig, said: int) -> int:
    async def attend(node: Node, stop: asyncio.Event) -> None:
        os.write(said, b".")
        os.close(said)

    try:
        return run(config, attend)
    except OttlaError as error:
        print(f"ottla: {error}", file=sys.stderr)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        print(f"ottla: the node cannot use its files or its port: {what}", file=sys.stderr)
    return 1
