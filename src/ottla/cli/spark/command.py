"""`ottla spark ...`: what a Spark cluster needs of Ottla."""

from __future__ import annotations

import sys

from cyclopts import App

from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import bold, human_bytes, plural, print_json, visible
from ottla.cli.values import FilePath

app = App(name="spark", help="Ship Ottla to the executors of a Spark cluster.", sort_key=8)

FOLDER = "ottla"
"""Directory into which the archive is unpacked, beside each executor."""
ENVIRONMENT = {
    "spark.executorEnv.PYTHONPATH": "",
    "spark.yarn.appMasterEnv.PYTHONPATH": "--master yarn --deploy-mode cluster",
    "spark.kubernetes.driverEnv.PYTHONPATH": "--master k8s://... --deploy-mode cluster",
}
"""Settings that put the folder on the path of Python, and where each is needed: everywhere, or for such drivers."""


@app.command
def archive(out: FilePath, /, *, with_pyarrow: Flag = False, json: AsJson = False) -> int:
    """Write an archive for `spark-submit --archives`, which ships Ottla to executors, and print how to submit with it.

    It contains Ottla as installed here, with its compiled modules, and those of its dependencies that executors need.
    It works with the same Python version and machine type, and needs only pyspark and pyarrow there. A driver outside
    the cluster (client mode) uses its own installed Ottla.

    Parameters
    ----------
    out
        The file to write, such as ottla.tar.gz; an existing file is replaced.
    with_pyarrow
        Include pyarrow, for executors that do not have it. Makes the archive three times as large.
    """
    from ottla.cli.spark.archive import platform, write

    if not out.name.endswith((".tar.gz", ".tgz")):
        raise CommandFailed("the archive's name must end in .tar.gz, so that Spark unpacks it", MISUSED)
    written = write(out, with_pyarrow=with_pyarrow)
    arguments = ["--archives", f"{out}#{FOLDER}"]
    everywhere, *others = ENVIRONMENT
    arguments += ["--conf", f"{everywhere}=./{FOLDER}"]
    if json:
        print_json(
            {
                "archive": str(out),
                "bytes": written.bytes,
                "files": written.files,
                "packages": written.packages,
                "python": platform(),
                "arguments": arguments,
                "cluster_mode": {ENVIRONMENT[name]: ["--conf", f"{name}=./{FOLDER}"] for name in others},
            }
        )
        return OK
    size = f"{human_bytes(written.bytes)}, {plural(written.files, 'file')}, for Python {platform()}"
    print(f"{bold(visible(str(out)))}: {size}")
    print(f"  {', '.join(f'{name} {version}' for name, version in written.packages.items())}")
    print("\nsubmit with")
    lines = [f"{option} {value}" for option, value in zip(arguments[::2], arguments[1::2], strict=True)]
    print(" \\\n".join(["  spark-submit", *(f"    {visible(line)}" for line in lines), "    JOB.py"]))
    for name in others:
        print(f"\nand with {ENVIRONMENT[name]}\n    --conf {name}=./{FOLDER}")
    sys.stdout.flush()
    return OK
