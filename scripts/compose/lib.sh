# What the scripts of the containers share: which programs there are.
# shellcheck shell=bash disable=SC2034

die() {
  echo "compose: $*" >&2
  exit 1
}

# find_engine sets engine (docker or podman) and compose (an array), or ends with what is missing.
find_engine() {
  engine=
  local e
  for e in docker podman; do
    if [ "${TAPEDECK_TEST_ENGINE:-}" = "$e" ]; then
      engine=$e
      return
    fi
    if command -v "$e" >/dev/null && [ -n "$("$e" version --format '{{.Server.Version}}' 2>/dev/null)" ]; then
      engine=$e
      break
    fi
  done
  [ -n "$engine" ] || die "no container engine answers: start Docker, or set DOCKER_HOST to the socket of one"
  # Compose talks to the engine's socket; podman has no builder of BuildKit's kind.
  if [ $engine = podman ]; then
    export DOCKER_BUILDKIT=0
    local socket
    for socket in "${XDG_RUNTIME_DIR:-/none}/podman/podman.sock" /run/podman/podman.sock; do
      if [ -z "${DOCKER_HOST:-}" ] && [ -S "$socket" ]; then export DOCKER_HOST=unix://$socket; fi
    done
    [ -n "${DOCKER_HOST:-}" ] || die "podman has no socket for Compose: start 'podman system service --time=0', or set DOCKER_HOST"
  fi
  if [ $engine = docker ] && docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
  elif command -v docker-compose >/dev/null; then
    compose=(docker-compose)
  else
    die "there is no Docker Compose v2: neither 'docker compose' nor 'docker-compose'"
  fi
}
