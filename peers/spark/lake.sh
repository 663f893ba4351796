#!/usr/bin/env bash
# The jars of Delta (lake.xml), which the pipeline `lake` is tested with. Skips what is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jars=$here/../../.cache/lake-jars

[ "$(find "$jars" -name '*.jar' 2>/dev/null | wc -l)" -ge 2 ] && exit
echo "== the jars of Delta from Maven Central"
"$here/../debian.sh" java:openjdk-17-jre-headless mvn:maven
mkdir -p "$jars"
jars=$(cd "$jars" && pwd)
log=$jars/maven.log
mvn --batch-mode --log-file "$log" --file "$here/lake.xml" dependency:copy -Djars.directory="$jars" &>/dev/null </dev/null || {
    grep -F '[ERROR]' "$log" >&2 || true
    echo "Maven could not fetch them; all it said is in $log" >&2
    exit 1
}
