#!/usr/bin/env bash
# Apache Kafka (KRaft, one node) for the suites that run on real components.
#
#   scripts/real/kafka.sh fetch           fetch the jars (once; kept)
#   scripts/real/kafka.sh start [PORT]    start in the background with an empty log, wait until it answers
#   scripts/real/kafka.sh stop            stop what start has started
#   scripts/real/kafka.sh lose DIR PORT   end it, remove the second half of a partition's log (DIR: <topic>-<partition>), start it again
#
# Jars, data, log and pid file live below $TAPEDECK_REAL_DIR (default: .real in the checkout). Needs Java 17 or newer and, for fetch,
# Maven. The controller listens on PORT+1. KAFKA_PROPERTIES names a file whose settings are put over those below, KAFKA_FORMAT gives
# more arguments to the formatting of the log (--add-scram …).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${KAFKA_NAME:-kafka} # a second one beside the first
default_port=9192
version=${KAFKA_VERSION:-4.4.0}

# shellcheck source=scripts/real/javalib.sh
source "$here/javalib.sh"
libs=$real_dir/kafka/$version

fetch() {
  [ -e "$libs/.complete" ] && return
  rm -rf "$libs"
  mkdir -p "$libs"
  cat >"$libs/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.tapedeck.test</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
  echo "$name: fetching Kafka $version" >&2
  (cd "$libs" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs >&2) || die "Maven could not fetch Kafka $version"
  touch "$libs/.complete"
}

prepare() { # PORT
  rm -rf "$data"
  mkdir -p "$data"
  cat >"$home/server.properties" <<PROPS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(($1 + 1))
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$(($1 + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$1
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.retention.check.interval.ms=5000
# A busy machine must not make the only broker look dead.
broker.session.timeout.ms=60000
PROPS
  [ -z "${KAFKA_PROPERTIES:-}" ] || cat "$KAFKA_PROPERTIES" >>"$home/server.properties"
  # Any id will do: 16 bytes as URL-safe base64 without padding.
  java -Xmx256m -cp "$libs/libs/*" kafka.tools.StorageTool format ${KAFKA_FORMAT:-} -t dGFwZWRlY2stdGVzdC1pZA -c "$home/server.properties" >"$home/format.log" 2>&1 ||
    die "formatting failed; see $home/format.log"
}

serve() { # PORT
  exec java -Xmx1g -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$libs/libs/*" kafka.Kafka "$home/server.properties"
}

ready() { # PORT: the broker listens once it has registered
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

exports() { # PORT
  echo "export TAPEDECK_TEST_KAFKA=127.0.0.1:$1"
}

# lose does to a log what an unclean election does: acknowledged records are gone, and their offsets are given to others.
lose() { # DIR PORT
  local file="$data/$1/00000000000000000000.log"
  [ -s "$file" ] || die "no log at $file"
  running || die "does not run"
  stop # not killed: the controller would wait for the dead broker's session
  rm -f "$data/.kafka_cleanshutdown"
  truncate -s $(($(stat -c %s "$file") / 2)) "$file" # the broker drops the batch that is cut in two
  rm -f "$data/$1"/*index "$data/$1"/*.snapshot
  (serve "$2") >>"$log" 2>&1 </dev/null &
  echo $! >"$pid_file"
  until ready "$2"; do
    running || die "ended while starting; see $log"
    sleep 0.3
  done
}

if [ "${1:-}" = lose ]; then lose "$2" "$3"; else main "$@"; fi
