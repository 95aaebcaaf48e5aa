#!/usr/bin/env bash
# Prints the packages of the module in the folder $1 that the race detector has something to find
# in: those whose code starts goroutines or shares memory between them, or whose tests start
# goroutines or whole nodes. Others only compute.
set -euo pipefail
cd "$(dirname "$0")/../${1-.}"
starts='^\s*go |\bgo func|\.Go\(|AfterFunc|httptest\.New|"runlog/(server/server|client/client)test"'
shares='\bchan |sync\.|atomic\.'
tested='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}'
go list -f "$tested" ./... | while read -r package dir; do
  for file in "$dir"/*.go; do
    pattern=$starts
    [[ $file == *_test.go ]] || pattern+="|$shares"
    if grep -qE -- "$pattern" "$file"; then
      echo "$package"
      break
    fi
  done
done
