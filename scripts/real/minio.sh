#!/usr/bin/env bash
# MinIO as a second real S3 server for the store suite: build, start, stop. It is a tool of the tests alone: no code of it
# is linked into anything here (its licence is the AGPL).
#
#   scripts/real/minio.sh build               build the binary (once; kept)
#   scripts/real/minio.sh start [PORT] [BUCKET…]   start in the background, wait until it answers, make the buckets
#   scripts/real/minio.sh run [PORT]          run in the foreground
#   scripts/real/minio.sh stop                stop what start has started
#
# Binary, data, log and pid file live below $TAPEDECK_REAL_DIR (default: .real in the checkout).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=minio
default_port=9102
# The newest version that the Go module proxy serves.
version=v0.0.0-20260212201848-7aac2a2c5b7c
package=github.com/minio/minio@$version
ready_path=/minio/health/ready

serve() { # PORT
  mkdir -p "$data"
  export MINIO_ROOT_USER=$access MINIO_ROOT_PASSWORD=$secret MINIO_REGION=us-east-1 MINIO_BROWSER=off MINIO_UPDATE=off
  # A key of the tests alone, so that SSE-KMS can be tried.
  export MINIO_KMS_SECRET_KEY="tapedeck-test:$(printf %032d 1 | base64)"
  exec "$binary" server --quiet --address "127.0.0.1:$1" "$data"
}

# shellcheck source=scripts/real/s3lib.sh
source "$here/s3lib.sh"
main "$@"
