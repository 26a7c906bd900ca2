# What the scripts of the S3 servers share. They set name, default_port, version, package, ready_path and serve().
# shellcheck shell=bash

real_dir=${TAPEDECK_REAL_DIR:-$(cd "$here/../.." && pwd)/.real}
mkdir -p "$real_dir"
real_dir=$(cd "$real_dir" && pwd)
binary=$real_dir/bin/$name-$version
home=$real_dir/$name
data=$home/data
pid_file=$home/pid
log=$home/log
# Not from AWS_ACCESS_KEY_ID and its like: those may be somebody's real ones, and start prints these.
access=tapedeck-test
secret=tapedeck-test-secret

die() {
  echo "$name: $*" >&2
  exit 1
}

build() {
  [ -x "$binary" ] && return
  echo "$name: building $package" >&2
  local gobin
  gobin=$(mktemp -d "$real_dir/build.XXXXXX")
  # MinIO takes some minutes the first time.
  # Outside of the checkout, so that its own dependencies are taken and go.mod here stays as it is.
  (cd "$gobin" && GOBIN=$gobin GOFLAGS= go install "$package") || {
    rm -rf "$gobin"
    die "build failed: $package"
  }
  mkdir -p "$real_dir/bin"
  mv "$gobin/$name" "$binary"
  rm -rf "$gobin"
}

# running says whether the process of the pid file is this server.
running() {
  [ -s "$pid_file" ] && kill -0 "$(cat "$pid_file")" 2>/dev/null
}

make_bucket() { # PORT BUCKET
  local answer tries=0
  # A server that answers may still be getting ready, and says 503 until it is.
  while answer=$(curl -sS -o /dev/null -w '%{http_code}' -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user "$access:$secret" \
    -H 'x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' \
    "http://127.0.0.1:$1/$2"); [ "$answer" = 503 ] && [ $tries -lt 150 ]; do
    tries=$((tries + 1))
    sleep 0.2
  done
  case $answer in
  200 | 409) ;; # made, or there already
  *) die "making the bucket $2 was answered by HTTP $answer; see $log" ;;
  esac
}

start() { # [PORT] [BUCKET…]
  local port=${1:-$default_port}
  [ $# -gt 0 ] && shift
  local buckets=("$@")
  [ ${#buckets[@]} -gt 0 ] || buckets=(tapedeck)
  running && die "runs already, with pid $(cat "$pid_file"); stop it first"
  build
  mkdir -p "$home"
  (serve "$port") >"$log" 2>&1 &
  echo $! >"$pid_file"
  local tries=0
  until curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$port$ready_path"; do
    running || die "ended while starting; see $log"
    tries=$((tries + 1))
    [ $tries -lt 150 ] || die "does not answer on port $port; see $log"
    sleep 0.2
  done
  # Another server on the port would answer as well, while this one could not bind and ends.
  running || die "ended while starting; see $log"
  local bucket
  for bucket in "${buckets[@]}"; do make_bucket "$port" "$bucket"; done
  cat <<END
export AWS_ACCESS_KEY_ID=$access AWS_SECRET_ACCESS_KEY=$secret
export TAPEDECK_TEST_S3_URLS="\${TAPEDECK_TEST_S3_URLS:-} s3://${buckets[0]}?endpoint=http://127.0.0.1:$port&region=us-east-1&path-style=true"
END
}

stop() {
  running || {
    rm -f "$pid_file"
    return
  }
  local pid tries=0
  pid=$(cat "$pid_file")
  kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || kill -9 "$pid" 2>/dev/null || true
    sleep 0.1
  done
  rm -f "$pid_file"
}

main() {
  case ${1:-} in
  build) build ;;
  start) start "${@:2}" ;;
  run)
    build
    mkdir -p "$home"
    serve "${2:-$default_port}"
    ;;
  stop) stop ;;
  *)
    echo "usage: $0 build | start [PORT] [BUCKET…] | run [PORT] | stop" >&2
    exit 2
    ;;
  esac
}
