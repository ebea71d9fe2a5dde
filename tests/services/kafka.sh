#!/usr/bin/env bash
# Fetches the Kafka broker's jars by Maven, once per machine, into the user's cache; prints nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")"

jars=${XDG_CACHE_HOME:-$HOME/.cache}/airflow-provider-ckpt/kafka-4.1.0
[ -d "$jars" ] && exit 0
./packages.sh maven
echo "setup: fetching the Kafka broker's jars"
mkdir -p "$(dirname "$jars")"
# A repository of its own, since others (Ivy, which Spark uses) trip over what Maven leaves in the common one.
work=$(mktemp -d "$jars.XXXXXX")
trap 'rm -rf "$work"' EXIT
mvn --batch-mode --file kafka.pom.xml -Dmaven.repo.local="$work/repository" -DincludeScope=runtime \
    -DoutputDirectory="$work/jars" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# Another make may have been faster.
mv -T "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ]
