# Sourced by what measures or attacks on real components; runs from the checkout. on_real BUCKET PROGRAM… builds the programs into $bin and starts Apache
# Kafka and versitygw with empty logs and this bucket; both stop when the script ends. Sets $kafka and $store, and the store's credentials.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export TAPEDECK_REAL_DIR=${TAPEDECK_REAL_DIR:-$PWD/.real}

on_real() {
  local kafka_port=${KAFKA_PORT:-9192} versitygw_port=${VERSITYGW_PORT:-9101}
  bucket=$1
  shift
  bin=$(mktemp -d)
  trap real_cleanup EXIT
  go build -o "$bin/" "$@"
  scripts/real/kafka.sh start "$kafka_port" >/dev/null
  scripts/real/versitygw.sh start "$versitygw_port" "$bucket" >/dev/null
  export AWS_ACCESS_KEY_ID=tapedeck-test AWS_SECRET_ACCESS_KEY=tapedeck-test-secret AWS_REGION=us-east-1
  kafka=127.0.0.1:$kafka_port
  store="s3://$bucket?endpoint=http://127.0.0.1:$versitygw_port&region=us-east-1&path-style=true"
}

real_cleanup() {
  for s in kafka versitygw; do scripts/real/$s.sh stop >/dev/null 2>&1 || true; done
  rm -rf "$bin" "$TAPEDECK_REAL_DIR/versitygw/data/$bucket"
}
