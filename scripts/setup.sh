#!/bin/sh
# Builds $VENV with every extra but `convert`, pinned by constraints.txt. Safe to run again.
set -eu
PYTHON="${PYTHON:-python3}"
VENV="${VENV:-.venv}"

fail() { echo "setup: $1" >&2; exit 1; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed; name it: make setup PYTHON=/path/to/python3.11"

if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    # Debian splits venv from Python; as root we can mend that, otherwise say how.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq python3-venv
    else
        fail "the venv module is missing: apt-get install python3-venv"
    fi
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
echo "setup: installing into $VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable '.[api,worker,embedded,dev]'
