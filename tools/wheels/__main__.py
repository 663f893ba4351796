"""`python -m tools.wheels`: build wheels and the source archive into `dist/`, check them and try those that can run."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tools.wheels import check, compiler, pack, smoke
from tools.wheels.debian import Unavailable
from tools.wheels.pythons import headers, runnable
from tools.wheels.targets import ARCHITECTURES, MACHINE, ROOT, VERSIONS, Target, targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they are written")
    parser.add_argument("--python", nargs="*", default=VERSIONS, metavar="3.N", help="versions (default: all)")
    parser.add_argument("--architecture", nargs="*", default=ARCHITECTURES, choices=ARCHITECTURES)
    parser.add_argument("--untried", action="store_true", help="do not install and run them")
    parser.add_argument("--archive-too", action="store_true", help="install the source archive too: it compiles")
    options = parser.parse_args()
    wheels = Wheels(options.out.resolve(), tried=not options.untried)
    wheels.build_pure(install_archive=options.archive_too)
    for target in targets(tuple(options.python), tuple(options.architecture)):
        wheels.build(target)
    return wheels.end()


class Wheels:
    """Builds one after the other, and says of each what became of it."""

    def __init__(self, out: Path, *, tried: bool) -> None:
        self._out, self._tried = out, tried
        self._wrong: list[str] = []
        self._pure = Path()

    def build_pure(self, *, install_archive: bool) -> None:
        for old in (*self._out.glob("ottla-*.whl"), *self._out.glob("ottla-*.tar.gz")):
            old.unlink()
        archive, self._pure = pack.pure(self._out)
        own = Target(_own_version(), MACHINE)
        said = [f"{archive.name}  {_size(archive)}"]
        if install_archive:
            said.append(self._try(archive, own, "compiled"))
        _say("; ".join(said))
        said = [f"{self._pure.name}  {_size(self._pure)}"]
        if self._tried:
            said.append(self._try(self._pure, own, "interpreted"))
        _say("; ".join(said))

    def build(self, target: Target) -> None:
        began = time.monotonic()
        try:
            include, source = headers(target)
            modules = compiler.compiled(target, include)
            wheel = pack.with_modules(self._pure, target, modules, self._out)
        except (Unavailable, compiler.NotCompiled) as error:
            self._wrong.append(f"no wheel for {target}: {error}")
            _say(self._wrong[-1])
            return
        said = [f"{wheel.name}  {_size(wheel)}, headers of {source}, {time.monotonic() - began:.0f} s"]
        wrong = check.mistakes(wheel, target, compiler.module_names())
        if (complaint := check.by_auditwheel(wheel, target)) is not None:
            wrong.append(complaint)
        self._wrong += [f"{wheel.name}: {each}" for each in wrong]
        said.append("; ".join(wrong) or "checked")
        if self._tried and not wrong:
            said.append(self._try(wheel, target, "compiled"))
        _say("; ".join(said))

    def _try(self, package: Path, target: Target, says: str) -> str:
        with tempfile.TemporaryDirectory(prefix="ottla-wheel-") as directory:
            try:
                python = runnable(target)
                place = smoke.installed(package, target, python, Path(directory) / "environment")
                smoke.works(place, modules=compiler.module_names(), says=says)
            except Unavailable as error:
                return f"not tried: {error}"
            except smoke.DoesNotWork as error:
                self._wrong.append(f"{package.name} does not work: {error}")
                return "does not work"
        return f"works ({python.where})"

    def end(self) -> int:
        for each in self._wrong:
            print(f"wheels: {each}", file=sys.stderr)
        return 1 if self._wrong else 0


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _say(line: str) -> None:
    print(f"   {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
