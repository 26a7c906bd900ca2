# What the scripts of the Java servers share. They set name and default_port, and define fetch, prepare, serve, ready and exports.
# shellcheck shell=bash disable=SC2154,SC2034

real_dir=${TAPEDECK_REAL_DIR:-$(cd "$here/../.." && pwd)/.real}
mkdir -p "$real_dir"
real_dir=$(cd "$real_dir" && pwd)
home=$real_dir/$name
data=$home/data
pid_file=$home/pid
log=$home/log
mkdir -p "$home"

die() {
  echo "$name: $*" >&2
  exit 1
}

# running says whether the process of the pid file is this server: a pid can have been given to another since.
running() {
  [ -s "$pid_file" ] && kill -0 "$(cat "$pid_file")" 2>/dev/null &&
    tr '\0' ' ' <"/proc/$(cat "$pid_file")/cmdline" 2>/dev/null | grep -q "java\|bash"
}

start() { # [PORT]
  local port=${1:-$default_port}
  running && die "runs already, with pid $(cat "$pid_file"); stop it first"
  command -v java >/dev/null || die "needs Java 17 or newer on the PATH"
  if ready "$port"; then die "something listens on port $port already"; fi
  fetch
  prepare "$port"
  (serve "$port") >"$log" 2>&1 </dev/null &
  echo $! >"$pid_file"
  local tries=0
  until ready "$port"; do
    running || die "ended while starting; see $log"
    tries=$((tries + 1))
    [ $tries -lt 300 ] || die "does not answer on port $port; see $log"
    sleep 0.3
  done
  exports "$port"
}

stop() {
  running || {
    rm -f "$pid_file"
    return 0
  }
  local pid
  pid=$(cat "$pid_file")
  kill "$pid" 2>/dev/null || true
  local tries=0
  while kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || { kill -9 "$pid" 2>/dev/null || true; }
    sleep 0.2
  done
  rm -f "$pid_file"
}

main() {
  case ${1:-} in
  fetch) fetch ;;
  start) start "${2:-$default_port}" ;;
  stop) stop ;;
  *) die "usage: $0 fetch | start [PORT] | stop" ;;
  esac
}
