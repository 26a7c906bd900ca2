#!/usr/bin/env bash
# Runs the contract suites and the end-to-end suite on real components: Apache Kafka (KRaft), Apicurio, versitygw and MinIO.
# Needs Go, a JDK (17 or newer), Maven, Python 3 and curl. What it fetches and builds stays below $TAPEDECK_REAL_DIR (default
# .real in the checkout); what it starts it stops.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export TAPEDECK_REAL_DIR=${TAPEDECK_REAL_DIR:-$PWD/.real}
kafka_port=${KAFKA_PORT:-9192} registry_port=${REGISTRY_PORT:-9281} versitygw_port=${VERSITYGW_PORT:-9101} minio_port=${MINIO_PORT:-9102}

stop_all() {
  for s in kafka registry versitygw minio; do scripts/real/$s.sh stop >/dev/null 2>&1 || true; done
}
trap stop_all EXIT

venv=$TAPEDECK_REAL_DIR/venv
if [ ! -e "$venv/.complete" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check fastavro==1.13.1 backports.zstd cramjam duckdb==1.4.4 duckdb-ext-avro==1.4.4.20260205
  touch "$venv/.complete"
fi

scripts/real/kafka.sh start "$kafka_port"
scripts/real/registry.sh start "$registry_port"
scripts/real/versitygw.sh start "$versitygw_port" tapedeck
scripts/real/minio.sh start "$minio_port" tapedeck

export AWS_ACCESS_KEY_ID=tapedeck-test AWS_SECRET_ACCESS_KEY=tapedeck-test-secret AWS_REGION=us-east-1
export TAPEDECK_TEST_KAFKA=127.0.0.1:$kafka_port
export TAPEDECK_TEST_REGISTRY=http://127.0.0.1:$registry_port/apis/ccompat/v7
export TAPEDECK_TEST_S3_DIR=$TAPEDECK_REAL_DIR/versitygw/data
export TAPEDECK_TEST_S3_KMS="http://127.0.0.1:$minio_port=tapedeck-test"
export TAPEDECK_TEST_S3_URLS="s3://tapedeck/suite?endpoint=http://127.0.0.1:$versitygw_port&region=us-east-1&path-style=true s3://tapedeck/suite?endpoint=http://127.0.0.1:$minio_port&region=us-east-1&path-style=true"
export TAPEDECK_TEST_PYTHON=$venv/bin/python

# A second Kafka, with TLS, users and ACLs, which the test starts and stops.
TAPEDECK_TEST_KAFKA_SECURE=1 go test -count=1 -timeout 10m -run 'TestLeastACLs' ./archiver
go test -count=1 -timeout 40m ./shared/store/s3 ./shared/kafka ./shared/schema ./shared/e2e "$@"

# What only a real broker does to an archiver: truncation, compaction, transactions, topics created again, an unclean loss.
TAPEDECK_TEST_KAFKA_LOSE="$PWD/scripts/real/kafka.sh lose" go test -count=1 -timeout 20m ./archiver -run '^TestReal'

# A restore's crash points, fencing and wiped targets, as the broker itself sees them.
go test -count=1 -timeout 15m -run '^(TestKilledAtEveryStep|TestLateWakerDoesNotStopTheNewer|TestRestoreKeepsEverything|TestWipedTarget|TestForeignRecord|TestChangedTimestampsAndProvenance)$' ./replayer/restore

# The receiver of examples/ takes a job to its proof.
go test -count=1 -timeout 5m -run '^TestPythonReceiver' ./replayer
