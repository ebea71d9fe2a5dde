#!/usr/bin/env bash
# Installs the packages of the page's sources, at the versions and hashes of package-lock.json; the tests need axe-core of them.
set -euo pipefail

cd airflow_provider_ckpt/ui
[ -e node_modules/axe-core/axe.min.js ] && exit 0
npm ci --no-audit --no-fund --silent
