"""Builds the one compiled module; without a C compiler the same file runs interpreted."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "ottla.protocol._records",
                ["src/ottla/protocol/_records.py"],
                optional=True,
                extra_compile_args=["-O2"],
            )
        ],
        language_level=3,
        build_dir="build/cython",
    )
)
