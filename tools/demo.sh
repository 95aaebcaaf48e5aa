#!/usr/bin/env bash
# Starts a node and a runner, appends the quickstart runs to the node twice, executes a manifest
# whose compute step is attested, and prints the results and a proof. `make demo` calls it. KEEP=1
# leaves both running.
set -euo pipefail
cd "$(dirname "$0")/.."

runlog=${RUNLOG:-$PWD/bin/runlog}
[[ $runlog == /* ]] || runlog=$PWD/$runlog
runner=${RUNNER:-$(dirname "$runlog")/runlog-runner}
for program in "$runlog" "$runner"; do
  [[ -x $program ]] || {
    echo "$program is no program: run make build build-runner." >&2
    exit 1
  }
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/runlog-demo.XXXXXX")
run=run_2026-02-11_analytics_nightly

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  printf '$ runlog %s\n' "$*"
  "$runlog" "$@"
}
show_runner() {
  printf '$ runlog-runner %s\n' "$*"
  "$runner" "$@"
}
# curl before 7.82 has no --json.
post() {
  printf "$ curl -s %s -H Content-Type:application/json -d '%s'\n" "$1" "$2"
  curl -sS "$1" -H Content-Type:application/json -d "$2"
}

command -v curl >/dev/null || {
  echo "The demo needs curl: install it." >&2
  exit 1
}

pids=()
stop() {
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap stop EXIT
# await waits until the last process has written a text to a log.
await() {
  for ((i = 0; i < 200; i++)); do
    grep -q "$1" "$2" && return
    if ! kill -0 "${pids[-1]}" 2>/dev/null; then break; fi
    sleep 0.1
  done
  cat "$2" >&2
  exit 1
}

say "Starting a node in $dir"
"$runlog" serve --data-dir "$dir/data" --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  --admin-listen 127.0.0.1:0 --raft-listen 127.0.0.1:0 >"$dir/log" 2>&1 &
pids+=($!)
await " msg=ready " "$dir/log"
address() { sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p" "$dir/data/addresses.json"; }
http=$(address http)
admin=$(address admin)
RUNLOG_SERVER=$(address grpc)
export RUNLOG_SERVER

say "Starting a runner, the reference engine"
"$runner" serve --listen 127.0.0.1:0 --store "$dir/runner" \
  --tenant tenant_acme --project proj_finance --environment prod >"$dir/runner.log" 2>&1 &
pids+=($!)
await "runner serves" "$dir/runner.log"
api=http://$(sed -n 's/.*"runner serves" listen=\([^ ]*\).*/\1/p' "$dir/runner.log")

say "1. Append five workflow runs"
show append docs/quickstart/*.jsonl

say "2. Append the same again: every event is a duplicate, nothing is inserted"
show append docs/quickstart/*.jsonl

say "3. The runs"
show runs

say "4. The snapshot of one run"
show snapshot "$run"

say "5. Its first events, as they are stored"
show events "$run" --limit 12

say "6. A run with unknown event types"
show snapshot run_2026-02-11_review_scores

say "7. Execute a manifest: its run waits at a step that people do"
show_runner run docs/quickstart/manifest.json --by jed --runner "$api" | tee "$dir/told"
attested=$(sed -n 's/^run \(.*\) is waiting$/\1/p' "$dir/told")
step=$(curl -sS "$api/api/runs/$attested" | sed 's/.*"step_run_id":"\([^"]*\)","step_key":"refresh".*/\1/')

say "8. An operator attests that the step is done, and resumes the run"
post "$api/api/runs/$attested/steps/$step/attest" '{"attested_by": "jed", "outcome": "SUCCESS", "artifacts": [{"name": "model.xlsx", "uri": "s3://acme/model.xlsx"}]}'
show_runner resume "$attested" --by jed --runner "$api"
show events "$attested"

say "9. Prove to others what was executed, and who attested what"
cd "$dir"
printf '$ runlog audit keys -o json > cluster.pub\n'
"$runlog" audit keys -o json >cluster.pub
show audit proof "$attested" -f run.proof --key cluster.pub
show audit verify run.proof --key cluster.pub

say "The node serves HTTP on http://$http and metrics on http://$admin/metrics"
echo "  curl -s http://$http/v1/runs/$run/snapshot"
if [[ ${KEEP-} == 1 ]]; then
  trap - EXIT
  echo "The runner serves $api/api."
  echo "Both keep running (data in $dir); stop them with: kill ${pids[*]}"
  echo "  export RUNLOG_SERVER=$RUNLOG_SERVER"
else
  echo "Both stop now; KEEP=1 make demo leaves them running."
fi
