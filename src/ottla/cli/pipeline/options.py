"""The options of `ottla pipeline run`: of the command line, then of a TOML file, then the defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ottla.cli import client_security
from ottla.cli.options import DEFAULT_BOOTSTRAP
from ottla.pipelines.runner import Options, PipelineError

_TABLES: Final = ("settings", "spark")
_PATHS: Final = ("directory", "archive", "client_config", "source_config")
_KINDS: Final[dict[str, type]] = {"once": bool, "partitions": int, "batch_records": int, "restarts_max": int}
"""Types of options in a file; the others are strings."""


def options_of(
    file: Path | None, given: Mapping[str, Any], settings: Mapping[str, Any], spark: Mapping[str, str]
) -> tuple[Options, dict[str, Any]]:
    """How to run, and the settings of the pipeline. Raises PipelineError for a file that cannot be meant."""
    written = _read(file) if file is not None else {}
    tables = {name: written.pop(name, {}) for name in _TABLES}
    chosen: dict[str, Any] = {**written, **{name: value for name, value in given.items() if value is not None}}
    for name in _PATHS:
        if name in chosen:
            chosen[name] = Path(chosen[name])
    if "metrics" in chosen:
        chosen["metrics"] = _address(str(chosen["metrics"]))
    if "batch_records" in chosen and chosen["batch_records"] < 1:
        raise PipelineError("batch_records must be at least 1")
    if "bootstrap" not in chosen:
        chosen["bootstrap"] = client_security.bootstrap_of_file() or DEFAULT_BOOTSTRAP
    if "master" not in chosen and "SPARK_ENV_LOADED" in os.environ:
        chosen["master"] = None  # `spark-submit` has been told
    chosen["spark"] = {**{name: str(value) for name, value in tables["spark"].items()}, **spark}
    return Options(**chosen), {**tables["settings"], **settings}


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{file} is not valid TOML: {error}") from None
    known = {field.name for field in fields(Options)}
    for name, value in found.items():
        if name in _TABLES:
            if not isinstance(value, dict):
                raise PipelineError(f"{file}: [{name}] is a table")
        elif name not in known:
            raise PipelineError(f"{file}: there is no option {name}; settings of the pipeline go under [settings]")
        elif type(value) is not _KINDS.get(name, str):
            raise PipelineError(f"{file}: {name} is {_KINDS.get(name, str).__name__}, not {value!r}")
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.split(",")[0].rpartition(":")
    if not host or not port.isdecimal():
        raise PipelineError(f"metrics: expected HOST:PORT, got {text!r}")
    return host.strip("[]"), int(port)
