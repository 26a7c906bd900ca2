#!/usr/bin/env bash
# Measures replays against live runs on Apache Kafka and versitygw, which it starts with empty logs and stops again.
# Arguments go to benchreplay (--records, --partitions, --rounds, …). Needs Go, a JDK (17 or newer), Maven and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export TAPEDECK_REAL_DIR=${TAPEDECK_REAL_DIR:-$PWD/.real}
kafka_port=${KAFKA_PORT:-9192} versitygw_port=${VERSITYGW_PORT:-9101}
bucket=bench

bin=$(mktemp -d)
cleanup() {
  for s in kafka versitygw; do scripts/real/$s.sh stop >/dev/null 2>&1 || true; done
  rm -rf "$bin" "$TAPEDECK_REAL_DIR/versitygw/data/$bucket"
}
trap cleanup EXIT

go build -o "$bin/" ./archiver/cmd/archiver ./processor/cmd/processor ./replayer/cmd/replayer ./shared/e2e/cmd/benchreplay
scripts/real/kafka.sh start "$kafka_port" >/dev/null
scripts/real/versitygw.sh start "$versitygw_port" "$bucket" >/dev/null
export AWS_ACCESS_KEY_ID=tapedeck-test AWS_SECRET_ACCESS_KEY=tapedeck-test-secret AWS_REGION=us-east-1
"$bin/benchreplay" --bootstrap "127.0.0.1:$kafka_port" --bin "$bin" \
  --store "s3://$bucket?endpoint=http://127.0.0.1:$versitygw_port&region=us-east-1&path-style=true" "$@"
