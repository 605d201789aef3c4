#!/usr/bin/env bash
# install.sh NAME: make .venv, install requirements/NAME.lock into it, and the package, editable.
# Does nothing when that has been done for the same files in the same place.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    stop "Python 3.11 or newer is needed: install it, or say where it is with PYTHON=/path/to/python3"
}

name=$1
lock=requirements/$name.lock
stamp=.venv/.installed-$name

# A .venv whose interpreter is gone (a moved clone, an upgraded system) is made again.
if ! new_enough .venv/bin/python; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        stop "$python lacks venv: install it (Debian and Ubuntu: apt-get install python3-venv)"
    say "creating .venv with $("$python" -V 2>&1)"
    "$python" -m venv --clear .venv
fi

# By content and place, not by time: a checkout changes times, and an editable install knows its path.
want=$({ pwd; cat "$lock" pyproject.toml; } | cksum)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0

say "installing $lock (the first time takes a few minutes)"
# Errors only: an index that lacks some package is worth a warning to pip, not to us.
pip=(.venv/bin/python -m pip -qq --disable-pip-version-check --no-input)
# PySpark comes as source. What builds it is held to the lock too (the second name is newer pips').
PIP_CONSTRAINT=$lock PIP_BUILD_CONSTRAINT=$lock \
    "${pip[@]}" install --use-pep517 -r "$lock"
# Everything it needs is there by now: nothing may be fetched that the lock does not name.
"${pip[@]}" install --no-deps --no-build-isolation --no-index -e .
echo "$want" >"$stamp"
