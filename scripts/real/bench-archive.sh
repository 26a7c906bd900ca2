#!/usr/bin/env bash
# Measures the archiver against the bare poll loop on Apache Kafka and versitygw, which it starts with empty logs and stops again.
# Arguments go to bencharchive (--records, --partitions, --rounds, …). Needs Go, a JDK (17 or newer), Maven and curl.
# shellcheck source=scripts/real/onreal.sh
source "$(dirname "${BASH_SOURCE[0]}")/onreal.sh"
on_real bench ./archiver/cmd/archiver ./shared/e2e/cmd/bencharchive
"$bin/bencharchive" --bootstrap "$kafka" --archiver "$bin/archiver" --store "$store" "$@"
