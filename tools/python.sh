#!/usr/bin/env bash
# Prints the path of the oldest or the newest Python on this machine that Ottla supports: tools/python.sh oldest|newest
# With `all` a line for each, the oldest first: its version and its path.
# Looked at are `python3` and `python3.N` of every directory of PATH, and the versions of pyenv and of uv. One counts if
# it can make a virtual environment. `.ci/run` tests with the oldest, since what a newer one has is missed there only.
set -euo pipefail
case ${1-} in oldest | all) order=-V ;; newest) order=-rV ;; *) echo "usage: $0 oldest|newest|all" >&2; exit 2 ;; esac

candidates() {
    local IFS=: directory
    for directory in $PATH; do
        printf '%s\n' "$directory"/python3 "$directory"/python3.[0-9] "$directory"/python3.[0-9][0-9]
    done
    printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3
    printf '%s\n' "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/*/bin/python3
}

found=$(candidates | sort -u | while read -r python; do
    [ -x "$python" ] || continue
    "$python" -c '
import os, sys
import ensurepip, sysconfig, venv
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit()
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final" and sys.implementation.name == "cpython":
    print(".".join(map(str, sys.version_info[:3])), os.path.realpath(sys.executable))
' 2>/dev/null || true
done | sort "$order")
[ -n "$found" ] || { echo "no Python 3.11 or later on PATH" >&2; exit 1; }
[ "$1" != all ] || { printf '%s\n' "$found" | uniq; exit; }
printf '%s\n' "$found" | head -n 1 | cut -d ' ' -f 2-
