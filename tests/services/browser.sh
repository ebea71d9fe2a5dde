#!/usr/bin/env bash
# Installs what drives the tests' browser into .venv, at the version and hash of browser.lock; only they need it.
set -euo pipefail

.venv/bin/python -c 'import playwright' 2>/dev/null && exit 0
uv=$(command -v uv || echo .venv/bin/uv)
VIRTUAL_ENV="$PWD/.venv" "$uv" pip install --quiet --no-deps --require-hashes -r tests/services/browser.lock
