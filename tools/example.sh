#!/usr/bin/env bash
# Runs the example engine against a node: once to the end, and once with a kill -9 on the way. `make
# check-example` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/runlog-example.XXXXXX")
bin/runlog serve --data-dir "$dir/data" --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
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
RUNLOG_SERVER=$(sed -n 's/.*"grpc": "\(.*\)".*/\1/p' "$dir/data/addresses.json")
export RUNLOG_SERVER

bin/engine -server "$RUNLOG_SERVER" -run whole

# The engine is killed in its third step, when the first two are recorded.
bin/engine -server "$RUNLOG_SERVER" -run killed -pace 300ms >"$dir/first" &
engine=$!
for ((i = 0; i < 200; i++)); do
  grep -q '^join' "$dir/first" && break
  sleep 0.02
done
kill -9 "$engine"
wait "$engine" 2>/dev/null || true
cat "$dir/first"
bin/engine -server "$RUNLOG_SERVER" -run killed | tee "$dir/second"
grep -q '^killed is COMPLETED after 14 events$' "$dir/second"
if grep '^extract' "$dir/second" | grep attempt; then
  echo "the engine has done a step again that the log has as done" >&2
  exit 1
fi
# Both runs have the same steps, in the end.
diff <(bin/runlog snapshot whole | grep -c SUCCESS) <(bin/runlog snapshot killed | grep -c SUCCESS)
