#!/usr/bin/env bash
# Builds the images of deploy/compose/packages.yml: Kafka and the registry from Maven's jars, versitygw with Go. For machines
# that reach package registries and no image registry. Needs Go, Java and Maven; what is fetched is kept in
# $TAPEDECK_REAL_DIR (default .real in the checkout), as by scripts/real/*.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/compose/lib.sh
source scripts/compose/lib.sh
find_engine
real_dir=${TAPEDECK_REAL_DIR:-$PWD/.real}

scripts/real/kafka.sh fetch
scripts/real/registry.sh fetch
scripts/real/versitygw.sh build

context=$real_dir/compose
rm -rf "$context"
mkdir -p "$context/java" "$context/kafka" "$context/registry" "$context/store"
cp -al "$real_dir/kafka/4.4.0/libs" "$context/kafka/libs"
cp deploy/packages/kafka-start "$context/kafka/"
cp -al "$real_dir/registry/3.0.9" "$context/registry/app"
cp -l "$real_dir"/bin/versitygw-* "$context/store/versitygw"
image() { # NAME TAG
  cp "deploy/packages/$1.Dockerfile" "$context/$1/Dockerfile"
  echo "compose: building the image of $1" >&2
  "$engine" build -q -t "tapedeck-packages/$1:$2" "$context/$1" >"$context/log" 2>&1 || {
    cat "$context/log" >&2
    die "the image of $1 does not build"
  }
}
image java 17
image kafka 4.4.0
image registry 3.0.9
image store 1.8.0
rm -rf "$context"
