#!/usr/bin/env bash
# Installs the tools of tests/benchmarks/peers.lock into an environment of their own in the user's cache, once per lock;
# prints its path. They never share one with the package.
set -euo pipefail
lock=tests/benchmarks/peers.lock

environment=${XDG_CACHE_HOME:-$HOME/.cache}/airflow-provider-ckpt/peers-$(sha256sum "$lock" | cut -c 1-12)
if [ ! -e "$environment/.ready" ]; then
    echo "setup: installing the tools to compare with" >&2
    uv=$(command -v uv || echo .venv/bin/uv)
    "$uv" venv --quiet --clear --python .venv/bin/python "$environment"
    VIRTUAL_ENV=$environment "$uv" pip sync --quiet --require-hashes "$lock"
    touch "$environment/.ready"
fi
echo "$environment"
