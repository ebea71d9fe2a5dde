#!/usr/bin/env bash
# Installs the tests' object stores into the user's cache, once per machine and version: two programs in Go, which are
# compiled here for some minutes, and Azurite at the versions and hashes of azurite/package-lock.json. moto is in .venv.
set -euo pipefail
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/airflow-provider-ckpt

# finish WORK TARGET: another make may have been faster.
finish() { mv -T "$1" "$2" 2>/dev/null || [ -d "$2" ]; }

# go_program NAME VERSION PACKAGE
go_program() {
    local target=$cache/$1-$2 work
    [ -d "$target" ] && return
    ./packages.sh go
    echo "setup: compiling $1 $2"
    mkdir -p "$cache"
    work=$(mktemp -d "$target.XXXXXX")
    GOBIN=$work GOFLAGS=-trimpath CGO_ENABLED=0 go install -ldflags='-s -w' "$3@v$2" 2>"$work.log" \
        || { cat "$work.log" >&2; rm -rf "$work" "$work.log"; exit 1; }
    rm "$work.log"
    finish "$work" "$target"
}

azurite() {
    local version target work
    version=$(sed -n 's/^ *"azurite": "\(.*\)"$/\1/p' azurite/package.json)
    target=$cache/azurite-$version
    [ -d "$target" ] && return
    ./packages.sh npm
    echo "setup: installing azurite $version"
    mkdir -p "$cache"
    work=$(mktemp -d "$target.XXXXXX")
    cp azurite/package.json azurite/package-lock.json azurite/.npmrc "$work"
    (cd "$work" && npm ci --omit=optional --ignore-scripts --no-audit --no-fund --silent) || { rm -rf "$work"; exit 1; }
    finish "$work" "$target"
}

azurite
go_program fake-gcs-server 1.56.1 github.com/fsouza/fake-gcs-server
go_program versitygw 1.8.0 github.com/versity/versitygw/cmd/versitygw
