"""How wheels with compiled modules are made of the pure one, and what the check of them finds.

That they can be compiled, installed and run is what `make wheel` itself shows: it compiles for minutes.
"""

from __future__ import annotations

import sysconfig
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from confluent_kafka import cimpl
from packaging.utils import parse_wheel_filename

from tools.wheels import check, compiler, pack, pythons, targets
from tools.wheels.debian import Unavailable
from tools.wheels.targets import Target

LINUX = Target("3.12", "x86_64")
LIBRARY = Path(cimpl.__file__)
"""A shared library that is no module of ours: it needs librdkafka."""


def pure(directory: Path) -> Path:
    wheel = directory / "ottla-1.2.3-py3-none-any.whl"
    about = "ottla-1.2.3.dist-info"
    files = {
        "ottla/a.py": b"x = 1\n",
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: ottla\nVersion: 1.2.3\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        digests = {name: urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=") for name, data in files.items()}
        lines = [f"{name},sha256={digest},{len(files[name])}\n" for name, digest in digests.items()]
        archive.writestr(f"{about}/RECORD", "".join([*lines, f"{about}/RECORD,,\n"]))
    return wheel


def with_modules(directory: Path, target: Target, names: list[str]) -> Path:
    out = directory / "out"
    out.mkdir()
    modules = {f"{name.replace('.', '/')}{target.suffix}": LIBRARY for name in names}
    return pack.with_modules(pure(directory), target, modules, out)


def test_a_wheel_with_modules(tmp_path: Path) -> None:
    wheel = with_modules(tmp_path, LINUX, ["ottla.a"])
    _, version, _, tags = parse_wheel_filename(wheel.name)
    assert str(version) == "1.2.3"
    assert {str(tag) for tag in tags} == set(LINUX.tags)
    assert "cp312-cp312-manylinux_2_17_x86_64" in LINUX.tags
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read("ottla-1.2.3.dist-info/WHEEL").decode()
        assert archive.read("ottla/a.cpython-312-x86_64-linux-gnu.so") == LIBRARY.read_bytes()
        assert (
            "ottla/a.cpython-312-x86_64-linux-gnu.so,sha256=" in archive.read("ottla-1.2.3.dist-info/RECORD").decode()
        )
    assert "Root-Is-Purelib: false" in about and "none-any" not in about
    assert all(f"Tag: {tag}\n" in about for tag in LINUX.tags)


def test_the_suffix_is_what_python_looks_for() -> None:
    own = Target(sysconfig.get_python_version(), targets.MACHINE)
    assert own.suffix == EXTENSION_SUFFIXES[0]


def test_what_a_check_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if targets.MACHINE != "x86_64":
        pytest.skip("the library that is checked is this machine's")
    wheel = with_modules(tmp_path, LINUX, ["ottla.a", "ottla.b"])
    found = check.mistakes(wheel, LINUX, ["ottla.a", "ottla.c"])
    assert f"ottla/c{LINUX.suffix} is missing" in found
    assert f"ottla/b{LINUX.suffix} does not belong there" in found
    assert f"ottla/b{LINUX.suffix} has no source beside it" in found
    assert any(each.startswith(f"ottla/a{LINUX.suffix}: it needs librdkafka") for each in found)
    data = LIBRARY.read_bytes()
    assert "it is for EM_X86_64, not for aarch64" in check.of_library(data, "aarch64")
    monkeypatch.setattr(check, "GLIBC", (2, 1))
    assert any(each.startswith("it needs glibc 2.") for each in check.of_library(data, "x86_64"))


def test_compiled_as_setup_py_does() -> None:
    assert "-O2" in compiler.compiler_options() and {"-fwrapv", "-DNDEBUG"} <= set(compiler.AS_PYTHON_IS)
    assert {"-fwrapv", "-DNDEBUG"} <= set(sysconfig.get_config_var("CFLAGS").split())


def test_a_python_without_headers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "of_this_machine", dict)
    with pytest.raises(Unavailable, match=r"no headers of Python 3\.12: install it"):
        pythons.headers(LINUX)
