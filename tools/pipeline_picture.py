"""`python -m tools.pipeline_picture docs/spark/pipeline.svg`: the picture of a pipeline as a terminal shows it.

With `--status FILE` of a run's own `status.json`, which is what the picture in the documents is of.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ottla.cli.pipeline.view import _picture
from ottla.pipelines.runner.state import QueryStatus, Status

WIDTH = 84
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own names a place to fetch a font from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--status", type=Path, required=True)
    options = parser.parse_args()
    found = json.loads(options.status.read_text())
    queries = [QueryStatus(**query) for query in found.pop("queries")]
    status = Status(**found, queries=queries)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "dim"), f"ottla pipeline run {status.name}"))
    console.print(_picture(status, WIDTH))
    svg = console.export_svg(title=f"ottla pipeline run {status.name}", code_format=FORMAT, unique_id="ottla")
    options.picture.write_text(svg.rstrip() + "\n")


if __name__ == "__main__":
    main()
