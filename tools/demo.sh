#!/usr/bin/env bash
# Starts a node, appends the quickstart runs to it twice, and prints the results. `make demo` calls
# it. KEEP=1 leaves the node running.
set -euo pipefail
cd "$(dirname "$0")/.."

runlog=${RUNLOG:-$PWD/bin/runlog}
dir=$(mktemp -d "${TMPDIR:-/tmp}/runlog-demo.XXXXXX")
run=run_2026-02-11_analytics_nightly

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  printf '$ runlog %s\n' "$*"
  "$runlog" "$@"
}

say "Starting a node in $dir"
"$runlog" serve --data-dir "$dir/data" --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  --admin-listen 127.0.0.1:0 --raft-listen 127.0.0.1:0 >"$dir/log" 2>&1 &
node=$!
stop() {
  kill "$node" 2>/dev/null || true
  wait "$node" 2>/dev/null || true
  rm -rf "$dir"
}
trap stop EXIT
for ((i = 0; i < 200; i++)); do
  [[ -s $dir/data/addresses.json ]] && break
  if ! kill -0 "$node" 2>/dev/null; then
    cat "$dir/log" >&2
    exit 1
  fi
  sleep 0.1
done
address() { sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p" "$dir/data/addresses.json"; }
http=$(address http)
admin=$(address admin)
RUNLOG_SERVER=$(address grpc)
export RUNLOG_SERVER

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

say "The node serves HTTP on http://$http and metrics on http://$admin/metrics"
echo "  curl -s http://$http/v1/runs/$run/snapshot"
if [[ ${KEEP-} == 1 ]]; then
  trap - EXIT
  echo "It keeps running (process $node, data in $dir); stop it with: kill $node"
  echo "  export RUNLOG_SERVER=$RUNLOG_SERVER"
else
  echo "It stops now; KEEP=1 make demo leaves it running."
fi
