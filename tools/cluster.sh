#!/usr/bin/env bash
# Starts a cluster of three nodes with TLS on this machine, appends events to it, and shows its
# status until Ctrl-C. `make cluster` calls it. CLUSTER_SECONDS=10 ends it after this time;
# CLUSTER_RATE=50 sets the number of runs a second. -m: each child has its own process group, so
# Ctrl-C reaches only this script, which then ends the children in order.
set -euom pipefail
cd "$(dirname "$0")/.."

runlog=${RUNLOG:-$PWD/bin/runlog}
rate=${CLUSTER_RATE:-20}
dir=$(mktemp -d "${TMPDIR:-/tmp}/runlog-cluster.XXXXXX")
names=(n1 n2 n3)
# Process ids of this script's own children. It ends no other process.
nodes=() source='' load='' watch=''

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
running() { [[ -n $1 ]] && kill -0 "$1" 2>/dev/null; }
end() {
  if running "$1"; then kill "-${2:-TERM}" "$1" 2>/dev/null || true; fi
  if [[ -n $1 ]]; then wait "$1" 2>/dev/null || true; fi
}
stop() {
  trap '' INT TERM
  end "$watch" INT
  end "$source"
  end "$load"
  for node in "${nodes[@]}"; do if running "$node"; then kill "$node" 2>/dev/null || true; fi; done
  for node in "${nodes[@]}"; do wait "$node" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM
fail() {
  echo "$*" >&2
  tail -n 20 "$dir"/*.log >&2
  exit 1
}

# Other nodes must know --raft-listen before a node has started, so the script searches these ports.
# All other ports are any free ones.
free_port() {
  local port
  for ((try = 0; try < 100; try++)); do
    port=$((20000 + RANDOM % 10000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && [[ " ${ports[*]-} " != *" $port "* ]]; then
      echo "$port"
      return
    fi
  done
  return 1
}
ports=()
for _ in "${names[@]}"; do ports+=("$(free_port)"); done
join=$(printf ',127.0.0.1:%s' "${ports[@]}")
join=${join:1}

say "Certificates, and three nodes in $dir"
"$runlog" cluster certs --dir "$dir/certs" "${names[@]}" >/dev/null
for i in "${!names[@]}"; do
  name=${names[i]}
  "$runlog" serve --data-dir "$dir/$name" --node-id "$name" --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
    --admin-listen 127.0.0.1:0 --raft-listen "127.0.0.1:${ports[i]}" --bootstrap-expect "${#names[@]}" --join "$join" \
    --node-ca "$dir/certs/ca.crt" --node-cert "$dir/certs/$name.crt" --node-key "$dir/certs/$name.key" \
    --memory 512MiB >"$dir/$name.log" 2>&1 &
  nodes+=($!)
done
RUNLOG_SERVER=''
for i in "${!names[@]}"; do
  for ((wait = 0; wait < 600; wait++)); do
    [[ -s $dir/${names[i]}/addresses.json ]] && break
    running "${nodes[i]}" || fail "${names[i]} has ended"
    sleep 0.1
  done
  grpc=$(sed -n 's/.*"grpc": "\(.*\)".*/\1/p' "$dir/${names[i]}/addresses.json") || fail "${names[i]} does not serve"
  RUNLOG_SERVER+=${RUNLOG_SERVER:+,}$grpc
  echo "  ${names[i]}  process ${nodes[i]}  gRPC $grpc  log $dir/${names[i]}.log"
done
export RUNLOG_SERVER

say "About $rate runs a second, each of 22 events"
events() {
  local scope='"tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1'
  local pause
  pause=$(awk -v rate="$rate" 'BEGIN { print 1 / rate }')
  for ((run = 1; ; run++)); do
    local id=run-$$-$run at line=''
    printf -v at '%(%Y-%m-%dT%H:%M:%SZ)T' -1
    local event="\"runId\":\"$id\",$scope,\"emittedAt\":\"$at\",\"payload\":{}"
    line="{\"eventType\":\"RunStarted\",$event}"$'\n'
    for ((step = 1; step <= 10; step++)); do
      line+="{\"eventType\":\"StepStarted\",\"stepId\":\"s$step\",$event}"$'\n'
      line+="{\"eventType\":\"StepCompleted\",\"stepId\":\"s$step\",$event}"$'\n'
    done
    printf '%s{"eventType":"RunCompleted",%s}\n' "$line" "$event"
    sleep "$pause"
  done
}
export TZ=UTC
mkfifo "$dir/events"
events >"$dir/events" 2>/dev/null &
source=$!
"$runlog" append -f - <"$dir/events" >"$dir/load.out" 2>"$dir/load.log" &
load=$!

echo "  Lose a node: kill -9 ${nodes[0]}    Another leader: runlog cluster transfer"
echo "  export RUNLOG_SERVER=$RUNLOG_SERVER"
say "runlog cluster status --watch 1s"
"$runlog" cluster status --watch 1s &
watch=$!
if [[ -n ${CLUSTER_SECONDS-} ]]; then
  sleep "$CLUSTER_SECONDS" &
  sleeper=$!
  wait "$sleeper" || true
  end "$watch" INT
else
  trap : INT TERM
  wait "$watch" || true
  trap 'exit 130' INT TERM
  end "$watch" INT
fi
running "$load" || fail "the appends have ended"
end "$source"
wait "$load" || fail "the appends have failed"
say "What was appended, and the state of the cluster"
tail -n 1 "$dir/load.out"
if [[ -n ${CLUSTER_SECONDS-} ]]; then
  "$runlog" cluster doctor
else
  "$runlog" cluster doctor || true # the user may have broken it on purpose
fi
