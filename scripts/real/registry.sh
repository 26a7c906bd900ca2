#!/usr/bin/env bash
# The Apicurio schema registry (in memory) for the suites that run on real components.
#
#   scripts/real/registry.sh fetch           fetch the application (once; kept)
#   scripts/real/registry.sh start [PORT]    start in the background, empty, wait until it answers
#   scripts/real/registry.sh stop            stop what start has started
#
# Everything lives below $TAPEDECK_REAL_DIR (default: .real in the checkout). Needs Java 17 or newer and, for fetch, Maven.
# Confluent's API is under /apis/ccompat/v7.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=registry
default_port=9281
version=${APICURIO_VERSION:-3.0.9}

# shellcheck source=scripts/real/javalib.sh
source "$here/javalib.sh"
app=$home/$version

fetch() {
  [ -e "$app/.complete" ] && return
  rm -rf "$app"
  mkdir -p "$app"
  echo "$name: fetching Apicurio Registry $version" >&2
  local artifact=io.apicurio:apicurio-registry-app:$version:tar.gz:all
  (cd "$app" &&
    mvn -q -B dependency:get -Dtransitive=false -Dartifact="$artifact" >&2 &&
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory=. >&2 &&
    tar xzf ./*.tar.gz && rm ./*.tar.gz) || die "Maven could not fetch $artifact"
  touch "$app/.complete"
}

prepare() { :; }

serve() { # PORT
  cd "$app"
  local jar
  jar=$(find . -name "apicurio-registry-app-$version-runner.jar" | head -1)
  [ -n "$jar" ] || die "no runner jar in $app"
  exec java -Xmx512m -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$1" -jar "$jar"
}

ready() { # PORT
  curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$1/apis/ccompat/v7/subjects"
}

exports() { # PORT
  echo "export TAPEDECK_TEST_REGISTRY=http://127.0.0.1:$1/apis/ccompat/v7"
}

main "$@"
