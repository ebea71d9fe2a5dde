#!/usr/bin/env bash
# Makes .venv from requirements.lock: by uv where it is, else by a uv installed into the new environment.
set -euo pipefail

wanted='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'
python=''
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c "$wanted" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: Python 3.11, 3.12 or 3.13 is needed (tried: ${PYTHON:-python3.11 python3.12 python3.13 python3}); install one, or name it: make setup PYTHON=/path/to/python" >&2
    exit 1
fi

usable() { [ -x .venv/bin/python ] && .venv/bin/python -c "$wanted" && { command -v uv || [ -x .venv/bin/uv ]; } >/dev/null; }
if ! usable; then
    if command -v uv >/dev/null; then
        uv venv --quiet --clear --python "$("$python" -c 'import sys; print(sys.executable)')" .venv
    else
        "$python" -c 'import ensurepip' 2>/dev/null || tests/services/packages.sh venv "$python"
        "$python" -m venv --clear .venv
        .venv/bin/python -m pip install --quiet uv
    fi
fi

uv=$(command -v uv || echo .venv/bin/uv)
export VIRTUAL_ENV="$PWD/.venv"
echo "setup: installing the locked packages into .venv"
"$uv" pip sync --quiet --require-hashes requirements.lock
"$uv" pip install --quiet --no-deps --no-build-isolation --editable .

# Each test starts many interpreters, and where PYTHONDONTWRITEBYTECODE is set none would leave anything for the next.
.venv/bin/python -m compileall -q -j 0 -x '/tests/' "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" airflow_provider_ckpt >/dev/null || true
