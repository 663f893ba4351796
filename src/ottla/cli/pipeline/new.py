"""`ottla pipeline new`: a directory with a pipeline of the user's own, which runs and has a test from the start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ottla.cli.exits import FAILED, CommandFailed
from ottla.cli.pipeline.new_tests import test_of
from ottla.pipelines.runner import Pipeline

_SUBMIT: Final = '''"""For spark-submit: spark-submit [its options] submit.py [options of ottla pipeline run]."""

import sys
from pathlib import Path

from ottla.cli.main import main

HERE = Path(__file__).parent
sys.exit(main(["pipeline", "run", str(HERE / "{name}.py"), "--config", str(HERE / "settings.toml"), *sys.argv[1:]]))
'''

_README: Final = """# {name}

{about}

```
ottla pipeline run {name}.py --config settings.toml
ottla pipeline status {name}
ottla pipeline logs {name}
ottla pipeline stop {name}
pytest
```

It began as Ottla's pipeline `{origin}`. On a cluster: `spark-submit --master ... submit.py --checkpoints URL`.
"""


def create(directory: Path, pipeline: Pipeline, *, overwrite: bool = False) -> list[Path]:
    """The files written, the pipeline first. Raises CommandFailed where the directory is there already."""
    name = directory.name
    if not name.isidentifier():
        raise CommandFailed(f"{name!r} is not a valid name for a Python module", FAILED)
    try:
        directory.mkdir(parents=True, exist_ok=overwrite)
    except FileExistsError:
        raise CommandFailed(f"{directory} exists already; overwrite it with --overwrite", FAILED) from None
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be created: {error.strerror}", FAILED) from None
    texts = {
        f"{name}.py": pipeline.file.read_text(encoding="utf-8"),
        "settings.toml": _settings(pipeline),
        "submit.py": _SUBMIT.format(name=name),
        f"test_{name}.py": test_of(name, pipeline.name),
        "README.md": _README.format(name=name, about=pipeline.about, origin=pipeline.name),
    }
    try:
        for file, text in texts.items():
            (directory / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be written to: {error.strerror}", FAILED) from None
    return [directory / file for file in texts]


def _settings(pipeline: Pipeline) -> str:
    lines = ["# Options of `ottla pipeline run`, by name; the command line overrides them.", ""]
    lines += ['bootstrap = "127.0.0.1:9092"', '# master = "local[*]"', '# every = "10 seconds"', "", "[settings]"]
    for setting in pipeline.settings:
        lines += [f"# {setting.about}", f"{setting.name} = {_toml(setting.default)}"]
    return "\n".join([*lines, "", "[spark]", '# "spark.executor.memory" = "2g"', ""])


def _toml(value: Any) -> str:
    """A scalar: JSON's forms are TOML's too."""
    return json.dumps(value)
