"""Builds the compiled modules, each with a `.pxd` beside it. Without a C compiler the same files run interpreted.

With `OTTLA_INTERPRETED=1` in the environment nothing is compiled: `make setup` installs Ottla so while it compiles the
modules beside that, and who wants a quick `pip install` may.
"""

import os
import threading
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
TYPED = [path for path in sorted(SOURCE.rglob("*.pxd")) if path.with_suffix(".py").exists()]
AT_ONCE = min(4, os.cpu_count() or 1)
REPORT_EVERY = 10
"""Modules between two lines of progress."""
COMPILER_OPTIONS = ["-O2", "-w", "-g0"]
"""The warnings are about C that Cython wrote; without symbols for a debugger, a third less to compile."""


class BuildWithProgress(build_ext):
    """Prints how many modules are compiled. `make setup` shows it, and `pip install -v .`."""

    def run(self) -> None:
        self.compiled = 0
        self.counting = threading.Lock()
        super().run()

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        with self.counting:
            self.compiled += 1
            if self.compiled % REPORT_EVERY == 0 or self.compiled == len(self.extensions):
                print(f"   {self.compiled} of {len(self.extensions)} modules", flush=True)


def extensions() -> list[Extension]:
    if os.environ.get("OTTLA_INTERPRETED", "") not in ("", "0"):
        return []
    from Cython.Build import cythonize

    found = cythonize(
        [
            Extension(
                ".".join(path.relative_to(SOURCE).with_suffix("").parts),
                [path.with_suffix(".py").as_posix()],
                extra_compile_args=COMPILER_OPTIONS,
            )
            for path in TYPED
        ],
        language_level=3,
        # Annotations are mypy's: an `int` there may be an `IntEnum` here. A file that checks bounds by hand says so.
        compiler_directives={"annotation_typing": False, "auto_pickle": False},
        nthreads=AT_ONCE,
        build_dir="build/cython",
        quiet=True,
    )
    for each in found:
        each.optional = True  # said here, because cythonize does not hand it on
    return list(found)


if __name__ == "__main__":  # `tools.wheels` compiles the same for other machines
    setup(
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildWithProgress},
        options={"build_ext": {"parallel": AT_ONCE}},
    )
