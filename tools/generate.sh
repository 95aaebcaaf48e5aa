#!/usr/bin/env bash
# Generates the code under proto/ and server/gateway/ from the .proto files. `make generate` and
# `make check` call it, with the plugins in .bin and google/api in third_party/googleapis.
#
#   tools/generate.sh          writes changed files, and removes files that have no .proto file
#   tools/generate.sh --check  only compares, and fails if a file differs from the generated one
set -euo pipefail
cd "$(dirname "$0")/.."

buf=tools/buf/node_modules/.bin/buf
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

# Every generated file below the folder $1, as a path relative to it.
generated() {
  (cd "$1" && find proto server/gateway -name '*.pb.go' -o -name '*.pb.gw.go' -o -name 'openapi.json' -o -name 'openapi.swagger.json') | LC_ALL=C sort
}

# The OpenAPI plugin takes the title of a merged description from the file that it reads first. That
# is not the first one by name.
{
  echo "openapiOptions:"
  echo "  file:"
  for file in proto/runlog/v1/*.proto; do
    cat <<EOF
    - file: ${file#proto/}
      option:
        info:
          title: runlog
          description: An append authority and a projection database for workflow runs.
          version: v1
          license:
            name: Apache-2.0
EOF
  done
} >third_party/openapi.yaml

"$buf" generate --template buf.gen.yaml --output "$fresh"
"$buf" generate --template buf.gen.api.yaml --output "$fresh"
"$buf" generate --template buf.gen.node.yaml --output "$fresh"

api=$fresh/proto/runlog/v1
node tools/openapi.mjs "$api/openapi.swagger.json" "$api/openapi.json"
rm "$api/openapi.swagger.json"

stale=0
while read -r file; do
  cmp -s "$fresh/$file" "$file" && continue
  if [[ ${1-} == --check ]]; then
    echo "$file differs from what its .proto file generates" >&2
    stale=1
  elif [[ -f $fresh/$file ]]; then
    install -D -m 644 "$fresh/$file" "$file"
  else
    rm "$file"
  fi
done < <(LC_ALL=C sort -u <(generated "$fresh") <(generated .))
if ((stale)); then
  echo "run make generate" >&2
  exit 1
fi
