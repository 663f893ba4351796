#!/bin/sh
# Installs Debian packages for commands that are missing: peers/debian.sh COMMAND:PACKAGE...
# Does nothing where all are there. Without root or apt it says what to install, and fails.
set -eu
missing=
for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing:$missing" >&2
    echo "  install them with your package manager, for example: sudo apt-get install$missing" >&2
    echo "  then run the same command again" >&2
    exit 1
fi
echo "== Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
