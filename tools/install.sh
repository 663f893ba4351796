#!/bin/sh
# Installs packages into a virtual environment: tools/install.sh VENV ARGUMENTS-OF-PIP-INSTALL...
# By uv, which needs a fifth of the processor time; by pip where uv is not to be had, fails, or cannot know what pip has
# been told (an index of one's own). PySpark comes as a source archive of 450 MB that is made a wheel: it is not
# compressed, only to be unpacked again.
set -eu
venv=$1
shift
DIST_EXTRA_CONFIG=$(cd "$(dirname "$0")" && pwd)/uncompressed.cfg
export DIST_EXTRA_CONFIG
"$venv/bin/python" -c 'import uv' 2>/dev/null || "$venv/bin/python" -m pip install --quiet uv || true
if [ -x "$venv/bin/uv" ] && ! "$venv/bin/python" -m pip config list | grep -Eq '(index-url|no-index)='; then
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@" && exit 0
    echo "   uv could not; now by pip" >&2
fi
exec "$venv/bin/python" -m pip install --quiet "$@"
