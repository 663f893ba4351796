#!/usr/bin/env bash
# Sets up what the demo needs beside Ottla itself: Java and Maven (Debian packages), PySpark (the extra `spark`) and the
# jars of Spark's Kafka connector (pom.xml). Says what it does, skips what is there, can be run any number of times.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
jars=${OTTLA_SPARK_JARS:-$root/.cache/spark-jars}

say() { printf 'demo: %s\n' "$*"; }

python_packages() {
    "$python" -c 'import pyspark, pandas, pyarrow, sys; sys.exit(pyspark.__version__ != "4.2.0")' 2>/dev/null && return
    say "installing PySpark (about 450 MB)"
    "$python" -m pip install --quiet "pyspark==4.2.0" "pyarrow>=15" "pandas<3"
}

connector_jars() {
    [ "$(find "$jars" -name '*.jar' 2>/dev/null | wc -l)" -ge 4 ] && return
    say "fetching the Kafka connector's jars into $jars"
    mkdir -p "$jars"
    local log=$jars/maven.log
    mvn --batch-mode --log-file "$log" --file "$root/demo/pom.xml" dependency:copy -Djars.directory="$jars" &>/dev/null </dev/null || {
        grep -F '[ERROR]' "$log" >&2 || true
        say "Maven could not fetch them; all it said is in $log" >&2
        exit 1
    }
}

"$root/peers/debian.sh" java:openjdk-17-jre-headless mvn:maven git:git
python_packages
connector_jars
say "ready"
