"""Whether a wheel keeps what its name promises: architecture, C library, and every compiled module."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tools.wheels.targets import GLIBC, Target

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0"}
"""Libraries of the C library. Python's own symbols are of the process that loads the module."""


def mistakes(wheel: Path, target: Target, modules: list[str]) -> list[str]:
    """What is wrong with it, by our own look into its files; nothing, if all is well."""
    wrong = []
    expected = {f"{name.replace('.', '/')}{target.suffix}" for name in modules}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.endswith(".so")}
        wrong += [f"{name} is missing" for name in sorted(expected - found)]
        wrong += [f"{name} does not belong there" for name in sorted(found - expected)]
        wrong += [
            f"{name} has no source beside it"
            for name in sorted(found)
            if f"{name.partition('.')[0]}.py" not in archive.namelist()
        ]
        for name in sorted(found):
            wrong += [f"{name}: {each}" for each in of_library(archive.read(name), target.architecture)]
    return wrong


def of_library(data: bytes, architecture: str) -> list[str]:
    """What is wrong with a compiled module."""
    elf = ELFFile(io.BytesIO(data))
    wrong = []
    if elf["e_machine"] != _MACHINES[architecture]:
        wrong.append(f"it is for {elf['e_machine']}, not for {architecture}")
    dynamic = elf.get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        return [*wrong, "it is no shared library"]
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in _LIBRARIES:
            wrong.append(f"it needs {tag.needed}")
        if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            wrong.append("it looks for libraries in a directory of the machine that built it")
    if (newest := glibc(elf)) > GLIBC:
        wrong.append(f"it needs glibc {'.'.join(map(str, newest))}")
    return wrong


def glibc(elf: ELFFile) -> tuple[int, ...]:
    """The newest version of the C library that a symbol asks for."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return ()
    names = [each.name for _, needed in section.iter_versions() for each in needed]
    versions = [re.fullmatch(r"GLIBC_([\d.]+)", name) for name in names]
    return max((tuple(map(int, each[1].split("."))) for each in versions if each), default=())


def by_auditwheel(wheel: Path, target: Target) -> str | None:
    """What auditwheel has against the wheel's platform; None where it agrees."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=False
    )
    text = " ".join(done.stdout.split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    if done.returncode or found is None:
        return f"auditwheel: {(text + done.stderr).strip()[-400:]}"
    agreed = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{target.architecture}", found[1])
    if agreed is None or (int(agreed[1]), int(agreed[2])) > GLIBC:
        return f"auditwheel: it is {found[1]}"
    return None
