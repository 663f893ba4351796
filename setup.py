"""Builds the one compiled module; without a C compiler the same file runs interpreted."""

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension(
            "ottla.protocol._records",
            ["src/ottla/protocol/_records.py"],
            extra_compile_args=["-O2", "-w"],  # the warnings are about C that Cython wrote
        )
    ],
    language_level=3,
    build_dir="build/cython",
    quiet=True,
)
for extension in extensions:
    extension.optional = True  # said here, because cythonize does not hand it on

setup(ext_modules=extensions)
