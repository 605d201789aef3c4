#!/usr/bin/env bash
# Resolve the dependencies of pyproject.toml into requirements/*.lock.
# Without arguments, versions that are locked stay; `make lock LOCK_FLAGS=--upgrade` moves them.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # compile NAME OPTION...: the runtime with all extras, plus what the options add
    local name=$1
    shift
    echo "lock: requirements/$name.lock"
    .venv/bin/python -m uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
        --extra all --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        --output-file "requirements/$name.lock" "$@"
}

# One resolution of everything, and the others as its parts: one .venv can serve all of them.
compile all --group test --group bench --group lock "$@"
compile run --group demo --constraint requirements/all.lock
compile test --group test --constraint requirements/all.lock
compile bench --group bench --constraint requirements/all.lock

# A lock has to work for everybody: it may not name this machine's mirrors or files.
if grep -nE '://|^-|(^|[[:space:]@])/' requirements/*.lock; then
    echo "lock: the lines above name a host, an option or a path" >&2
    exit 1
fi
