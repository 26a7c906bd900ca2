#!/usr/bin/env bash
# Measures replays against live runs on Apache Kafka and versitygw, which it starts with empty logs and stops again.
# Arguments go to benchreplay (--records, --partitions, --rounds, …). Needs Go, a JDK (17 or newer), Maven and curl.
# shellcheck source=scripts/real/onreal.sh
source "$(dirname "${BASH_SOURCE[0]}")/onreal.sh"
on_real bench ./archiver/cmd/archiver ./processor/cmd/processor ./replayer/cmd/replayer ./shared/e2e/cmd/benchreplay
"$bin/benchreplay" --bootstrap "$kafka" --bin "$bin" --store "$store" "$@"
