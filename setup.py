"""Builds the compiled modules, each with a `.pxd` beside it. Without a C compiler the same files run interpreted."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")
TYPED = [path for path in sorted(SOURCE.rglob("*.pxd")) if path.with_suffix(".py").exists()]
AT_ONCE = min(4, os.cpu_count() or 1)

extensions = cythonize(
    [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [path.with_suffix(".py").as_posix()],
            extra_compile_args=["-O2", "-w"],  # the warnings are about C that Cython wrote
        )
        for path in TYPED
    ],
    language_level=3,
    # Annotations are mypy's: an `int` there may be an `IntEnum` here. A file that checks bounds by hand says so itself.
    compiler_directives={"annotation_typing": False, "auto_pickle": False},
    nthreads=AT_ONCE,
    build_dir="build/cython",
    quiet=True,
)
for extension in extensions:
    extension.optional = True  # said here, because cythonize does not hand it on

setup(ext_modules=extensions, options={"build_ext": {"parallel": AT_ONCE}})
