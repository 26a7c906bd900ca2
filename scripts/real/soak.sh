#!/usr/bin/env bash
# Archives on Apache Kafka and versitygw, which it starts with empty logs and stops again, while archivers, store and broker fail at random;
# then compares archive and log. Arguments go to soak (--for, --kills, --events, --pause, --seed, …). Needs Go, a JDK (17 or newer), Maven, curl.
# shellcheck source=scripts/real/onreal.sh
source "$(dirname "${BASH_SOURCE[0]}")/onreal.sh"
on_real soak ./archiver/cmd/archiver ./shared/e2e/cmd/soak
"$bin/soak" --bootstrap "$kafka" --broker-pid "$(cat "$TAPEDECK_REAL_DIR/kafka/pid")" --archiver "$bin/archiver" --store "$store" "$@"
