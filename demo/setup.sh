#!/usr/bin/env bash
# Sets up what the demo needs beside Ottla itself: Java (a Debian package) and PySpark (the extra `spark`). Says what it
# does, skips what is there, can be run any number of times.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}

say() { printf 'demo: %s\n' "$*"; }

python_packages() {
    "$python" -c 'import pyspark, pandas, pyarrow, sys; sys.exit(pyspark.__version__ != "4.2.0")' 2>/dev/null && return
    say "installing PySpark (about 450 MB)"
    "$python" -m pip install --quiet "pyspark==4.2.0" "pyarrow>=15" "pandas<3"
}

"$root/peers/debian.sh" java:openjdk-17-jre-headless git:git
python_packages
say "ready"
