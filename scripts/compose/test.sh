#!/usr/bin/env bash
# Builds the images, brings the stack up through Compose, and proves on it over the published ports that replay = live while every
# service's container is killed and restarted. Takes everything down again.
#
#   COMPOSE_IMAGES=public|packages   where Kafka, registry and store come from (default: public where they can be pulled)
#
# Needs Docker (or podman with its socket) and Docker Compose v2, Go, and for `packages` Java and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/compose/lib.sh
source scripts/compose/lib.sh
find_engine
export TAPEDECK_TEST_ENGINE=$engine # the hook need not look for it again: a replay takes seconds, and is to be met in its middle

export COMPOSE_PROJECT_NAME=tapedeck-test COMPOSE_PROFILES=
# Ports nobody listens on, below those that the system gives to outgoing connections.
for p in KAFKA_PORT REGISTRY_PORT STORE_PORT ARCHIVER_PORT REPLAYER_PORT PROCESSOR_PORT; do
  if [ -z "${!p:-}" ]; then
    while port=$((20000 + RANDOM % 10000)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    export "$p=$port"
  fi
done
export VERSION=${VERSION:-0.1.0-dev} REVISION=${REVISION:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
run=("$engine" run --rm --no-healthcheck)
limit=$((60 * 1000 * 1000)) # bytes of an image, compressed
services=(archiver replayer processor)
files=(-f docker-compose.yml)

compose() { "${compose[@]}" --progress plain "${files[@]}" "$@"; }
# bounded is compose with an end: `up` waits for ever for what does not become healthy.
bounded() { timeout 240 "${compose[@]}" --progress plain "${files[@]}" "$@"; }
say() { printf '\n-- %s (%s)\n' "$*" "$(date -u +%H:%M:%S)"; }
container() { "$engine" ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1"; }

work=$(mktemp -d)
ticker=
finish() {
  local status=$?
  trap - EXIT
  if [ $status != 0 ]; then
    say "failed with status $status; the ends of the logs"
    compose ps -a || true
    compose logs --tail 40 || true
  fi
  compose --profile demo down --volumes --timeout 30 >"$work/down" 2>&1 || { cat "$work/down"; status=1; }
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# podman runs health checks by timers of systemd, and not at all where there is none: there somebody must ask.
tick() {
  while :; do
    for id in $(podman ps -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"); do
      timeout 20 podman healthcheck run "$id" &
    done
    wait
    sleep 1
  done
}
if command -v podman >/dev/null; then
  tick >/dev/null 2>&1 &
  ticker=$!
fi

say "images of Kafka, registry and store"
if [ -z "${COMPOSE_IMAGES:-}" ]; then
  COMPOSE_IMAGES=public
  timeout 300 "${compose[@]}" "${files[@]}" pull -q kafka registry store >"$work/pull" 2>&1 || COMPOSE_IMAGES=packages
fi
if [ "$COMPOSE_IMAGES" = packages ]; then
  echo "from packages: no image registry answers, or it was asked for so"
  scripts/compose/packages.sh
  files+=(-f deploy/compose/packages.yml)
fi

say "images of the services"
compose --profile demo down --volumes >/dev/null 2>&1 || true # what an interrupted run left
compose build archiver >"$work/build" 2>&1 || { cat "$work/build"; die "the image of the archiver does not build"; }
compose --profile demo build >"$work/build" 2>&1 || { cat "$work/build"; die "images do not build"; }
for s in "${services[@]}"; do
  image=tapedeck/$s:$VERSION
  size=$("$engine" save "$image" | gzip -6 | wc -c)
  printf '%-10s %5.1f MB compressed   %s\n' "$s" "$(awk "BEGIN {print $size / 1e6}")" "$("${run[@]}" "$image" version)"
  [ "$size" -lt $limit ] || die "the image of $s has $size bytes; at most $limit"
  "${run[@]}" --read-only "$image" version | grep -q "$VERSION ($REVISION" || die "the image of $s does not carry version and revision"
  "$engine" inspect --type image --format '{{.Config.User}} {{json .Config.Labels}}' "$image" >"$work/config"
  grep -q '^65532' "$work/config" || die "the image of $s does not run as 65532: $(cat "$work/config")"
  grep -q "\"org.opencontainers.image.revision\":\"$REVISION\"" "$work/config" || die "the image of $s has no revision label: $(cat "$work/config")"
  # Nothing in it can be written by its user: owner root, no write permission for others. (Links have no permissions.)
  id=$("$engine" create "$image")
  "$engine" export "$id" | tar --numeric-owner -tvf - >"$work/files"
  "$engine" rm "$id" >/dev/null
  grep -q " usr/bin/$s\$" "$work/files" || die "no usr/bin/$s in the image"
  if grep -v '^l' "$work/files" | grep -E '^.{5}w|^.{8}w|^[^ ]+ +[^0/ ][^ ]*/' | grep -vE ' (dev|proc|sys|run|etc/(hosts|hostname|resolv.conf|mtab))(/|$)'; then
    die "the image of $s has files that its user could write to"
  fi
  case $s in # what it needs to get as far as to look at its user
  archiver) need=(-e TAPEDECK_STORE=mem://x -e TAPEDECK_BOOTSTRAP_SERVERS=kafka:1) ;;
  replayer) need=(-e TAPEDECK_STORE=mem://x) ;;
  processor) need=(-e TAPEDECK_PIPELINES=x.yaml -e TAPEDECK_BOOTSTRAP_SERVERS=kafka:1) ;;
  esac
  if "${run[@]}" --user 0 "${need[@]}" "$image" >"$work/root" 2>&1; then
    die "$s runs as root"
  fi
  grep -q 'running as root' "$work/root" || die "$s as root said: $(cat "$work/root")"
done

say "stack up"
bounded up --detach --no-build >"$work/up" 2>&1 || { cat "$work/up"; die "compose up"; }
compose ps
for s in "${services[@]}"; do
  set -- $("$engine" inspect --type container --format '{{.HostConfig.ReadonlyRootfs}} {{.Config.User}}' "$(container "$s")")
  [ "$1" = true ] && [ "$2" = 65532:65532 ] || die "$s: read-only $1, user $2"
done

say "the proof, with every service killed in the middle"
mkdir "$work/bin"
go build -o "$work/bin/" ./shared/e2e/cmd/prove ./archiver/cmd/archiver
AWS_SHARED_CREDENTIALS_FILE=$PWD/deploy/compose/aws-credentials "$work/bin/prove" run --hook scripts/compose/service.sh \
  --trips 300000 --rate 4000 --timeout 6m \
  --bootstrap "127.0.0.1:$KAFKA_PORT" --registry "http://127.0.0.1:$REGISTRY_PORT/apis/ccompat/v7" \
  --store "s3://tapedeck/archive?endpoint=http://127.0.0.1:$STORE_PORT&region=us-east-1&path-style=true" \
  --archiver "http://127.0.0.1:$ARCHIVER_PORT" --replayer "http://127.0.0.1:$REPLAYER_PORT" --processor "http://127.0.0.1:$PROCESSOR_PORT"

say "the demo profile, on the same stack"
# Not anew: after the proof Kafka holds no record, and a processor that starts again needs those of its open windows. Compose
# recreates everything where the engine, busy, does not tell it an image's digest.
bounded --profile demo up --detach --no-build --no-recreate >"$work/up" 2>&1 || { cat "$work/up"; die "compose up with the demo profile"; }
code=$("$engine" wait "$(container demo)")
compose --profile demo logs --no-log-prefix demo
[ "$code" = 0 ] || die "the demo ended with status $code"

say "one more replay by curl"
url=http://127.0.0.1:$REPLAYER_PORT/replays
curl -sf -X POST "$url" -d '{"name":"and-again","target":"live","from":"earliest","until":"end"}' >/dev/null
timeout 120 curl -sfN "$url/and-again/events" >"$work/events"
curl -sf "$url/and-again" >"$work/job"
grep -q '"state": *"COMPLETED"' "$work/job" || die "the replay ended as $(cat "$work/job")"
echo COMPLETED

say "health by the binaries, clean stop"
for s in "${services[@]}"; do
  "$engine" exec "$(container "$s")" "/usr/bin/$s" healthcheck || die "$s says that it is not healthy"
  scripts/compose/service.sh stop "$s" >/dev/null
  echo "$s: healthy, then stopped with status 0"
done

say "all down"
compose --profile demo down --volumes --timeout 30 >"$work/down" 2>&1 || { cat "$work/down"; die "compose down"; }
left=$("$engine" ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"; "$engine" volume ls -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME")
[ -z "$left" ] || die "left behind: $left"
echo "compose: everything held"
