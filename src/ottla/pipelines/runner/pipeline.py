"""A pipeline as a module says it: what it does, what can be set, and how its queries are built."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ottla.pipelines.runner.errors import PipelineError, Value

if TYPE_CHECKING:
    from ottla.pipelines.runner.job import Job

SHIPPED: Final = ("activity", "join", "lake", "ledger", "logs", "metrics", "mirror", "postgres", "replay", "ticks")
"""Modules of `ottla.pipelines`, by the name that they are run by."""
_EXTRAS: Final = {"psycopg": "postgres", "delta": "lake", "pyiceberg": "lake"}
"""The extra of Ottla that has a library, by what is missing."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Setting:
    """A setting, given by `--set name=value` or in a file; its default defines its type."""

    name: str
    default: Value
    about: str


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was found. `file` is its source, which `ottla pipeline new` copies."""

    name: str
    about: str
    settings: tuple[Setting, ...]
    build: Callable[[Job], None]
    file: Path
    spark: Callable[[Mapping[str, Value]], Mapping[str, str]] = lambda settings: {}
    """Spark settings of the session, from the pipeline's settings."""
    text: str = ""
    """The pipeline's input and output: the docstring after its first line."""

    def values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Every setting's value. Raises PipelineError for a name that there is not, or a value of another type."""
        known = {setting.name: setting for setting in self.settings}
        if others := sorted(set(given).difference(known)):
            raise PipelineError(f"{self.name} has no setting {others[0]}; it has {', '.join(known) or 'none'}")
        return {name: _typed(setting, given.get(name, setting.default)) for name, setting in known.items()}


def names() -> list[str]:
    """The pipelines that come with Ottla, sorted."""
    return [name for name in SHIPPED if importlib.util.find_spec(f"ottla.pipelines.{name}") is not None]


def about(name: str) -> str:
    """The first line of a pipeline that comes with Ottla, without importing it: that takes Spark."""
    spec = importlib.util.find_spec(f"ottla.pipelines.{name}")
    text = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    return (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)[0]


def load(name: str) -> Pipeline:
    """The pipeline of that name, or in that file (`./orders.py`). Raises PipelineError."""
    if name.endswith(".py"):
        return _pipeline(Path(name).stem, _module_of(Path(name)))
    if name not in names():
        raise PipelineError(f"there is no pipeline {name}; there are {', '.join(names())}, and files: ./NAME.py")
    try:
        return _pipeline(name, importlib.import_module(f"ottla.pipelines.{name}"))
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "", "pipelines")
        raise PipelineError(f"{name} needs {error.name}: pip install 'ottla[{extra}]'") from None


def _module_of(file: Path) -> ModuleType:
    if not file.is_file():
        raise PipelineError(f"there is no file {file}")
    name = f"ottla_pipeline_{re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # What stands beside it can be imported, as if the file were run.
    sys.path.insert(0, str(file.resolve().parent))
    spec.loader.exec_module(module)
    try:
        from pyspark import cloudpickle
    except ModuleNotFoundError:
        return module  # it is said when Spark is asked for
    # Executors have no such module.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _pipeline(name: str, module: ModuleType) -> Pipeline:
    if not _NAME.fullmatch(name):
        raise PipelineError(f"{name!r} is not a valid pipeline name: use letters, digits, '.', '_' and '-'")
    build = getattr(module, "build", None)
    if not callable(build):
        raise PipelineError(f"{module.__file__} has no function build(job)")
    settings = tuple(getattr(module, "SETTINGS", ()))
    head, _, text = inspect.cleandoc(module.__doc__ or "").partition("\n")
    spark = getattr(module, "spark_settings", Pipeline.spark)
    return Pipeline(name, head, settings, build, Path(module.__file__ or ""), spark, text.strip())


def _typed(setting: Setting, value: Value) -> Value:
    wanted = type(setting.default)
    if type(value) is wanted:
        return value
    if isinstance(value, bool) or not isinstance(value, str):
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if wanted is str and not isinstance(value, bool):
            return str(value)
        raise PipelineError(f"{setting.name}: expected {_KINDS[wanted]}, got {value!r}")
    try:
        if wanted is bool:
            return {"true": True, "false": False}[value.strip().lower()]
        return wanted(value)
    except (ValueError, KeyError):
        raise PipelineError(f"{setting.name}: expected {_KINDS[wanted]}, got {value!r}") from None


_KINDS: Final[dict[type, str]] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
