#!/usr/bin/env bash
# Prints the kafka-acls.sh commands that grant a service what deploy/kafka/acls.txt says.
#
#   deploy/kafka/acls.sh SERVICE PRINCIPAL NAME=VALUE...
#   deploy/kafka/acls.sh archiver User:archiver topic=trips topic=orders group.id=tapedeck-archiver
#
# A line is printed once for each value of its name. BOOTSTRAP and COMMAND_CONFIG in the environment say where and as whom.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
service=$1 principal=$2
shift 2
printed=0
while read -r who resource pattern name operation _; do
  [ "$who" = "$service" ] || continue
  names=("$name")
  if [[ $name =~ \<(.*)\> ]]; then
    hole=${BASH_REMATCH[1]} names=()
    for given in "$@"; do
      [ "${given%%=*}" != "$hole" ] || names+=("${name/<$hole>/${given#*=}}")
    done
    [ ${#names[@]} -gt 0 ] || { echo "# left out, since no $hole=… is given: $operation on $resource $name"; continue; }
  fi
  for n in "${names[@]}"; do
    case $resource in
    cluster) target=--cluster ;;
    *) target="--$resource '$n' --resource-pattern-type $pattern" ;;
    esac
    echo "kafka-acls.sh --bootstrap-server ${BOOTSTRAP:-localhost:9092} ${COMMAND_CONFIG:+--command-config $COMMAND_CONFIG }--add --allow-principal '$principal' --operation $operation $target"
    printed=$((printed + 1))
  done
done <"$here/acls.txt"
[ $printed -gt 0 ] || { echo "nothing to grant to $service in $here/acls.txt" >&2; exit 1; }
