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
mvn --quiet --batch-mode -Dstyle.color=never --file kafka.pom.xml -Dmaven.repo.local="$work/repository" -DincludeScope=runtime \
    -DoutputDirectory="$work/jars" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies >&2
# Another make may have been faster.
mv -T "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ]
