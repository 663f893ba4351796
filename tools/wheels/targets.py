"""What wheels are built for, and how their files and tags are called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheels"
"""What is kept between two runs: objects, headers, environments."""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ARCHITECTURES = ("x86_64", "aarch64")
MACHINE = os.uname().machine
GLIBC = (2, 17)
"""The oldest C library that they run with: that of manylinux2014 (2012), which every pip of today knows."""


@dataclass(frozen=True)
class Target:
    """A version of Python and an architecture."""

    version: str
    architecture: str

    def __str__(self) -> str:
        return f"Python {self.version}, {self.architecture}"

    @property
    def python_tag(self) -> str:
        return "cp" + self.version.replace(".", "")

    @property
    def platforms(self) -> tuple[str, ...]:
        """Both names of the same thing: older versions of pip know the first."""
        return f"manylinux2014_{self.architecture}", f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.architecture}"

    @property
    def tags(self) -> list[str]:
        return [f"{self.python_tag}-{self.python_tag}-{platform}" for platform in self.platforms]

    @property
    def triplet(self) -> str:
        return f"{self.architecture}-linux-gnu"

    @property
    def compiled_for(self) -> str:
        """As the compiler has it, with the C library."""
        return f"{self.triplet}.{GLIBC[0]}.{GLIBC[1]}"

    @property
    def suffix(self) -> str:
        """Suffix of the file name of a compiled module."""
        return f".cpython-{self.version.replace('.', '')}-{self.triplet}.so"

    @property
    def runs_here(self) -> bool:
        return self.architecture == MACHINE


def targets(versions: tuple[str, ...] = VERSIONS, architectures: tuple[str, ...] = ARCHITECTURES) -> list[Target]:
    return [Target(version, architecture) for version in versions for architecture in architectures]
