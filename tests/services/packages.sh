#!/usr/bin/env bash
# Sees to a system package: packages.sh chromium | go | java | mariadb | maven | postgres | redis | venv PYTHON. Installs it on Debian as root, else says what to do.
set -euo pipefail

java_new_enough() {
    local java=java version
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1) || return 1
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

go_new_enough() {
    local version
    version=$(go version 2>/dev/null | sed -nE 's/^go version go1\.([0-9]+).*/\1/p') || return 1
    [ -n "$version" ] && [ "$version" -ge 26 ]
}

postgres_there() {
    command -v psql >/dev/null || return 1
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

# The tests start servers of their own: keep a package that is installed from starting one.
start_no_server() {
    if [ "$(id -u)" -eq 0 ] && [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
}

# install_or_tell WHAT PACKAGE...: the first package that the system knows.
install_or_tell() {
    local what=$1 package
    shift
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "setup: $what is needed; install it (Debian, Ubuntu: sudo apt-get install $1) and run make again" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package")" ]; then
            echo "setup: installing $package"
            apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "$package" >/dev/null
            return
        fi
    done
    echo "setup: $what is needed, and this system has none of: $*" >&2
    exit 1
}

case ${1:-} in
    chromium)
        command -v chromium >/dev/null && exit 0
        install_or_tell 'Chromium (the tests use Airflow in a browser)' chromium
        ;;
    go)
        go_new_enough && exit 0
        install_or_tell "Go 1.26 or newer (the tests' object stores are compiled)" golang-1.26-go golang-go
        go_new_enough || { echo 'setup: the go found first is older than 1.26; install a newer one and put it first in PATH' >&2; exit 1; }
        ;;
    java)
        java_new_enough && exit 0
        install_or_tell 'Java 17 or newer (a JRE; Spark runs on it)' openjdk-17-jre-headless default-jre-headless
        java_new_enough || { echo 'setup: the java found first is older than 17; point JAVA_HOME at a newer one' >&2; exit 1; }
        ;;
    mariadb)
        command -v mariadbd >/dev/null && exit 0
        start_no_server
        install_or_tell 'MariaDB (server and client)' mariadb-server
        ;;
    maven)
        command -v mvn >/dev/null && exit 0
        install_or_tell "Maven (it fetches the tests' Kafka broker)" maven
        ;;
    npm)
        command -v npm >/dev/null && exit 0
        install_or_tell "npm (the tests judge the page's accessibility by axe-core)" npm
        ;;
    postgres)
        postgres_there && exit 0
        # The tests start servers of their own: keep the package from creating and starting one.
        if [ "$(id -u)" -eq 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
            mkdir -p /etc/postgresql-common
            echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
        fi
        install_or_tell 'PostgreSQL (server and psql)' postgresql
        ;;
    redis)
        command -v redis-server >/dev/null && exit 0
        start_no_server
        install_or_tell "Redis (the broker of the tests' Celery)" redis-server
        ;;
    venv)
        name=$(basename "$("$2" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')")
        install_or_tell "The venv module of $2" "$name-venv" python3-venv
        ;;
    *)
        echo "usage: $0 chromium | go | java | mariadb | maven | npm | postgres | redis | venv PYTHON" >&2
        exit 2
        ;;
esac
