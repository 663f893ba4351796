"""Roots to run things in: an overlay that throws away what is written, in namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")
DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "tty": 0}
BOOT_S = 120

_LAYERS = """
set -eu
mount --make-rprivate /
mount -t tmpfs none {place}
mkdir {place}/upper {place}/work {place}/root
mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {place}/root
root={place}/root
mkdir -p $root/proc $root/sys $root/dev $root/run $root/tmp
mount -t proc proc $root/proc
mount -t tmpfs -o mode=755 none $root/run
mount -t tmpfs -o mode=1777 none $root/tmp
mount -t tmpfs -o mode=755 none $root/dev
mkdir $root/dev/shm $root/dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 none $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
{devices}
"""
_SYSTEMD = """
mount --bind -o ro $root/proc/sys $root/proc/sys
mount -t sysfs -o ro sysfs $root/sys
mount -t tmpfs none $root/sys/fs/cgroup
{cgroups}
rm -rf $root/etc/systemd/system
mkdir -p $root/etc/systemd/system
printf '[Unit]\\nDescription=nothing but what the test starts\\n' >$root/etc/systemd/system/test.target
{masked}
: >{place}/booted
mkdir -p $root/.before
cd $root
pivot_root . .before
umount -l /.before
exec /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=test.target --log-target=journal
"""
MASKED = (
    "systemd-sysctl.service", "systemd-modules-load.service", "systemd-remount-fs.service", "systemd-udevd.service",
    "systemd-udev-trigger.service", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service",
    "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-fs-fuse-connections.mount",
    "proc-sys-fs-binfmt_misc.automount", "systemd-update-utmp.service", "systemd-journal-flush.service",
)  # fmt: skip
"""Units of a whole machine, which have no business in a part of one."""


def why_not() -> str | None:
    """Why this process can make no such roots; None where it can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs root and namespaces: not root, or no util-linux"
    trial = (
        "mount --make-rprivate / && mount -t tmpfs none /tmp && mkdir /tmp/u /tmp/w /tmp/r && "
        "mount -t overlay o -o lowerdir=/,upperdir=/tmp/u,workdir=/tmp/w /tmp/r && mount -t proc proc /tmp/r/proc && "
        "mknod /tmp/null c 1 3 && ip link set lo up"
    )
    flags = ["--mount", "--pid", "--fork", "--net", "--ipc", "--uts"]
    done = subprocess.run(["unshare", *flags, "sh", "-c", trial], capture_output=True, text=True)
    return f"needs root and namespaces: {done.stderr.strip()}" if done.returncode else None


class Root:
    """An overlay over a folder, with a process 1 of its own. As a context manager: `boot` at its begin, `end` after."""

    def __init__(
        self,
        lower: str = "/",
        *,
        binds: Mapping[str, str] | None = None,
        volumes: Mapping[str, str] | None = None,
        upper: str | None = None,
        systemd: bool = False,
        network: bool = False,
        main: Sequence[str] = (),
    ) -> None:
        """`lower` is a folder or several, the uppermost first, with colons between; `upper` keeps what is written.

        `binds` and `volumes` are files and folders of this machine by where they are seen, read-only and writable.
        With `systemd` process 1 is one; with `main` it is that command, once `release` was called, and nothing but the
        volumes can be written. With `network` this machine's network is that of the root.
        """
        self.lower = lower
        self.binds = dict(binds or {})
        self.volumes = dict(volumes or {})
        self.upper = upper
        self.systemd = systemd
        self.network = network
        self.main = list(main)
        self.place = Path(tempfile.mkdtemp(prefix="ottla-root-"))
        self.pid = 0
        self._unshare: subprocess.Popen[bytes] | None = None
        self._cgroup = f"ottla-test-{os.getpid()}-{self.place.name[-8:]}"

    def __enter__(self) -> Root:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def console(self) -> str:
        return (self.place.parent / f"{self.place.name}.console").read_text(errors="replace")

    def boot(self) -> None:
        """Returns when commands can be run. Raises RuntimeError with what was printed."""
        parts = self._cgroup_parts() if self.systemd else []
        enter = "".join(f"mkdir -p {each} && echo $$ >{each}/cgroup.procs\n" for each in parts)
        script = self._script()
        with open(f"{self.place}.console", "wb") as console:
            flags = ["--mount", "--pid", "--fork", "--ipc", "--uts", "--cgroup", *([] if self.network else ["--net"])]
            command = f"set -e\n{enter}exec unshare {shlex.join(flags)} sh -c {shlex.quote(script)}"
            self._unshare = subprocess.Popen(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        deadline_s = time.monotonic() + BOOT_S
        while True:
            if self._unshare.poll() is not None or time.monotonic() > deadline_s:
                said = self.console
                self.end()
                raise RuntimeError(f"the root did not come up: {said}")
            children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
            if children:
                self.pid = int(children[0])
                if self._is_up():
                    return
            time.sleep(0.05)

    def _is_up(self) -> bool:
        if self.main:
            return Path(f"{self.place}.waits").exists()
        try:
            name = Path(f"/proc/{self.pid}/comm").read_text().strip()
        except OSError:  # a helper of the shell's that was the first child for a moment
            return False
        if name != ("systemd" if self.systemd else "sleep"):
            return False
        state = self.run(["systemctl", "is-system-running"], check=False).stdout.strip() if self.systemd else "running"
        return state in ("running", "degraded")

    def run(
        self,
        command: Sequence[str] | str,
        *,
        check: bool = True,
        stdin: str = "",
        cwd: str = "/",
        timeout_s: float = 300,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in there, a text by the shell. Raises RuntimeError where it fails, with what it printed."""
        done = subprocess.run(
            self.command(command, cwd=cwd, env=env, user=user),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            said = f"{done.stdout}{done.stderr}{self._journal()}"
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{said}")
        return done

    def release(self) -> None:
        """Let `main` begin."""
        Path(f"{self.place}.waits").unlink()

    def stop(self) -> int:
        """Send `main` SIGTERM; returns its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self, *, timeout_s: float = 120) -> int:
        """Returns the exit code of `main`."""
        assert self._unshare is not None
        return self._unshare.wait(timeout_s)

    def _journal(self) -> str:
        if not self.systemd:
            return ""
        done = subprocess.run(self.command("journalctl --no-pager -n 40 2>&1"), capture_output=True, text=True)
        return f"\nthe journal:\n{done.stdout}"

    def command(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> list[str]:
        """What to run here so that it runs in there."""
        inner = ["/bin/sh", "-euc", command] if isinstance(command, str) else list(command)
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **(env or {})}
        as_user = []
        if user is not None:
            uid, _, gid = user.partition(":")
            as_user = ["setpriv", f"--reuid={uid}", f"--regid={gid or uid}", "--clear-groups", "--no-new-privs"]
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i", "-u", "-r", f"--wdns={cwd}", "--"]
        return [*enter, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *as_user, *inner]

    def end(self) -> None:
        """Everything in there is gone afterwards."""
        if self._unshare is not None and self._unshare.poll() is None:
            if self.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            else:
                self._unshare.kill()
            self._unshare.wait()
        for part in self._cgroup_parts():
            for directory in sorted(map(str, part.rglob("*/")), key=len, reverse=True):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            with contextlib.suppress(OSError):
                part.rmdir()
        shutil.rmtree(self.place, ignore_errors=True)
        for suffix in ("console", "waits", "work"):
            shutil.rmtree(f"{self.place}.{suffix}", ignore_errors=True)
            Path(f"{self.place}.{suffix}").unlink(missing_ok=True)

    def _cgroup_parts(self) -> list[Path]:
        """A part of the machine's control groups for this systemd, in each hierarchy that it would use."""
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS / self._cgroup]
        return [CGROUPS / each / self._cgroup for each in ("systemd", "unified") if (CGROUPS / each).is_dir()]

    def _script(self) -> str:
        devices = "".join(
            f"mknod -m 666 $root/dev/{name} c {5 if name == 'tty' else 1} {minor}\n" for name, minor in DEVICES.items()
        )
        place = shlex.quote(str(self.place))
        upper, work = f"{place}/upper", f"{place}/work"
        if self.upper is not None:  # both on one file system
            upper, work = shlex.quote(self.upper), shlex.quote(f"{self.upper}.work")
            os.makedirs(self.upper, exist_ok=True)
            os.makedirs(f"{self.upper}.work", exist_ok=True)
        text = _LAYERS.format(place=place, lower=shlex.quote(self.lower), upper=upper, work=work, devices=devices)
        if not self.network:
            text += "ip link set lo up\n"
        for options, places in (("-o ro", self.binds), ("", self.volumes)):
            for inside, outside in places.items():
                where = f"$root{shlex.quote(inside)}"
                made = f"mkdir -p {where}" if os.path.isdir(outside) else f"test -e {where} || : >{where}"
                text += f"{made}\nmount --bind {options} {shlex.quote(outside)} {where}\n"
        if self.main:
            waits = f"{place}.waits"
            text += f"mount -o remount,ro $root\n: >{waits}\nwhile test -e {waits}; do sleep 0.05; done\n"
            return f"{text}exec chroot $root {shlex.join(self.main)}"
        if not self.systemd:
            return f"{text}exec chroot $root sleep infinity"
        if (CGROUPS / "cgroup.controllers").exists():
            cgroups = "umount $root/sys/fs/cgroup\nmount -t cgroup2 none $root/sys/fs/cgroup"
        else:
            cgroups = "mkdir $root/sys/fs/cgroup/systemd\n"
            cgroups += "mount -t cgroup -o none,name=systemd cgroup $root/sys/fs/cgroup/systemd"
        masked = "\n".join(f"ln -s /dev/null $root/etc/systemd/system/{each}" for each in MASKED)
        return text + _SYSTEMD.format(place=place, cgroups=cgroups, masked=masked)
