#!/usr/bin/env bash
# jars.sh NAME: fetches the jars that NAME.pom.xml lists by Maven, once per machine, into NAME-VERSION in the user's
# cache; prints nothing if they are there. VERSION is the pom's.
set -euo pipefail
cd "$(dirname "$0")"

version=$(sed -n 's:^  <version>\(.*\)</version>$:\1:p' "$1.pom.xml")
jars=${XDG_CACHE_HOME:-$HOME/.cache}/airflow-provider-ckpt/$1-$version
[ -d "$jars" ] && exit 0
./packages.sh maven
echo "setup: fetching jars: $1 $version"
mkdir -p "$(dirname "$jars")"
# A repository of its own, since others (Ivy, which Spark uses) trip over what Maven leaves in the common one.
work=$(mktemp -d "$jars.XXXXXX")
trap 'rm -rf "$work"' EXIT
mvn --batch-mode --file "$1.pom.xml" -Dmaven.repo.local="$work/repository" -DincludeScope=runtime \
    -DoutputDirectory="$work/jars" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# Another make may have been faster.
mv -T "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ]
