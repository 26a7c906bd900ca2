#!/usr/bin/env bash
# versitygw as a real S3 server of its own: build, start, stop.
#
#   scripts/real/versitygw.sh build               build the binary (once; kept)
#   scripts/real/versitygw.sh start [PORT] [BUCKET…]   start in the background, wait until it answers, make the buckets
#   scripts/real/versitygw.sh run [PORT]          run in the foreground
#   scripts/real/versitygw.sh stop                stop what start has started
#
# Binary, data, log and pid file live below $TAPEDECK_REAL_DIR (default: .real in the checkout).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=versitygw
default_port=9101
# The version that the tests embed.
version=$(cd "$here/../.." && go list -m -f '{{.Version}}' github.com/versity/versitygw)
package=github.com/versity/versitygw/cmd/versitygw@$version
ready_path=/

serve() { # PORT
  mkdir -p "$data"
  exec "$binary" --port "127.0.0.1:$1" --access "$access" --secret "$secret" --region us-east-1 --quiet posix "$data"
}

# shellcheck source=scripts/real/s3lib.sh
source "$here/s3lib.sh"
main "$@"
