#!/usr/bin/env bash
# Runs a plan of a dozen steps on a real Temporal server: its worker is killed, and a step that has
# failed is retried while the run is paused, so that it waits for the resume. At the end the log of
# runlog stands beside the history of Temporal, and it fails unless both have what it says.
# `make demo-temporal` calls it. With KEEP=DIR, the history and the events stay in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

runlog=$PWD/bin/runlog
adapter=$PWD/bin/runlog-temporal
temporal=${TEMPORAL:?names the program of the Temporal server: run make demo-temporal}
dir=$(mktemp -d "${TMPDIR:-/tmp}/runlog-demo.XXXXXX")
run=nightly-1
scope=(--tenant acme --project shop --environment prod)

command -v python3 >/dev/null || {
  echo "The demo needs python3: install it." >&2
  exit 1
}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  printf '$ runlog %s\n' "$*"
  "$runlog" "$@"
}

declare -A process=()
stop() {
  touch "$dir/go" # No step waits any more.
  for name in worker node temporal; do
    [[ -z ${process[$name]-} ]] || kill "${process[$name]}" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# await NAME COMMAND… waits until a command succeeds.
await() {
  local what=$1
  shift
  for ((i = 0; i < 600; i++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "There is no $what after a minute." >&2
  tail -n 20 "$dir"/*.log >&2
  exit 1
}
# has TYPE [STEP] reports whether the log has an event. grep -c reads all that is written.
has() { "$runlog" events "$run" -o json | grep "\"eventType\":\"$1\"" | grep -c -- "${2:+\"stepId\":\"$2\"}"; }

say "Starting a Temporal server, a node of runlog and a worker in $dir"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --db-filename "$dir/temporal.db" --log-level error >"$dir/temporal.log" 2>&1 &
process[temporal]=$!
"$runlog" serve --data-dir "$dir/data" --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  --admin-listen 127.0.0.1:0 --raft-listen 127.0.0.1:0 >"$dir/node.log" 2>&1 &
process[node]=$!
await "address of the node" test -s "$dir/data/addresses.json"
RUNLOG_SERVER=$(sed -n 's/.*"grpc": "\(.*\)".*/\1/p' "$dir/data/addresses.json")
export RUNLOG_SERVER
await "node" "$runlog" cluster status
# A worker ends if Temporal does not answer when it starts.
await "Temporal server" "$temporal" operator namespace describe --address "127.0.0.1:$port" default
connection=(--temporal "127.0.0.1:$port" --server "$RUNLOG_SERVER" "${scope[@]}")
settings=(--heartbeat 3s --task-timeout 2s)
worker() {
  # A killed worker leaves the folder of its step, which goes with $dir.
  TMPDIR=$dir "$adapter" worker "${connection[@]}" "${settings[@]}" --allow "file://$dir" --executors command >>"$dir/worker.log" 2>&1 &
  process[worker]=$!
}
worker
await "worker" grep -q "worker works" "$dir/worker.log"

# The step hold waits for the file go, and load fails until there is the file fixed.
cat >"$dir/plan.json" <<PLAN
{"schemaVersion": "v1.2", "planId": "nightly", "planVersion": "1", "steps": [
  {"stepId": "orders", "type": "command", "inputs": {"argv": ["echo", "{\"rows\": 120}"]}},
  {"stepId": "customers", "type": "command", "inputs": {"argv": ["echo", "{\"rows\": 31}"]}},
  {"stepId": "prices", "type": "command", "inputs": {"argv": ["echo", "{\"rows\": 7}"]}},
  {"stepId": "hold", "type": "command", "class": "data", "inputs": {"shell": true,
    "argv": ["for i in \$(seq 600); do test -e $dir/go && exit; sleep 0.1; done; exit 1"]}},
  {"stepId": "check_orders", "type": "noop", "dependsOn": ["orders"], "when": [{"step": "orders", "output": "/rows", "exists": true}]},
  {"stepId": "check_prices", "type": "noop", "dependsOn": ["prices"]},
  {"stepId": "join", "type": "noop", "dependsOn": ["check_orders", "customers", "check_prices"]},
  {"stepId": "load", "type": "command", "dependsOn": ["join"], "retry": {"maxAttempts": 1}, "inputs": {"argv": ["test", "-e", "$dir/fixed"]}},
  {"stepId": "refund", "type": "noop", "dependsOn": ["orders"], "when": [{"step": "orders", "output": "/rows", "equals": 0}]},
  {"stepId": "publish", "type": "noop", "dependsOn": ["load", "hold"]},
  {"stepId": "mail", "type": "noop", "dependsOn": ["publish"]},
  {"stepId": "clean", "type": "noop", "dependsOn": ["publish"], "when": [{"step": "publish", "status": "ANY"}]}
]}
PLAN

say "1. Start a run of twelve steps as a workflow of Temporal"
printf '$ runlog-temporal start --run %s plan.json\n' "$run"
"$adapter" start "${connection[@]}" "${settings[@]}" --run "$run" "$dir/plan.json"
await "StepStarted of hold" has StepStarted hold
await "StepFailed of load" has StepFailed load
show snapshot "$run"

say "2. Kill the worker with a step under way, and start another one"
kill -9 "${process[worker]}"
wait "${process[worker]}" 2>/dev/null || true
worker

say "3. Pause the run, mend what load needs, and retry it: it waits, as the run is paused"
show signal "$run" PAUSE --reason demo
await RunPaused has RunPaused
touch "$dir/fixed"
show signal "$run" RETRY_STEP --step load --reason mended
sleep 2
show snapshot "$run"

say "4. Resume the run: load goes on, and then hold may end"
show signal "$run" RESUME --reason demo
await "StepCompleted of load" has StepCompleted load
touch "$dir/go"
await RunCompleted has RunCompleted

say "5. The run, as runlog has it"
show snapshot "$run"

say "6. The same run in Temporal's history, beside the log"
printf '$ runlog-temporal history --run %s\n' "$run"
"$adapter" history "${connection[@]}" --run "$run" >"$dir/history.json"
"$runlog" events "$run" -o json >"$dir/events.jsonl"
if [[ -n ${KEEP-} ]]; then cp "$dir/history.json" "$dir/events.jsonl" "$KEEP"; fi
python3 tools/compare-temporal.py "$dir/history.json" "$dir/events.jsonl" \
  killed:hold waited:hold:load paused:load retried:load skipped:refund
