#!/usr/bin/env bash
# Ends and starts one service's container, as the proof asks for it:
#
#   scripts/compose/service.sh start|kill|stop SERVICE
#
# kill is SIGKILL. stop is SIGTERM; it fails where the service did not end by itself, with status 0, within the grace period. The
# project is $COMPOSE_PROJECT_NAME (default tapedeck).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/compose/lib.sh
source scripts/compose/lib.sh
[ $# = 2 ] || die "usage: $0 start|kill|stop SERVICE"
find_engine
id=$("$engine" ps -aq --filter "label=com.docker.compose.project=${COMPOSE_PROJECT_NAME:-tapedeck}" \
  --filter "label=com.docker.compose.service=$2")
[ -n "$id" ] || die "no container of $2"
state() { "$engine" inspect --type container --format "{{.State.$1}}" "$id"; }

case $1 in
start) "$engine" start "$id" ;;
kill)
  before=$(state StartedAt)
  "$engine" kill --signal KILL "$id"
  "$engine" wait "$id" >/dev/null
  [ "$(state ExitCode)" = 137 ] || [ "$(state StartedAt)" != "$before" ] || die "$2 was not killed: exit status $(state ExitCode)"
  ;;
stop)
  "$engine" stop --time 30 "$id"
  code=$(state ExitCode)
  [ "$code" = 0 ] || die "$2 did not end cleanly on SIGTERM: exit status $code"
  ;;
*) die "usage: $0 start|kill|stop SERVICE" ;;
esac
