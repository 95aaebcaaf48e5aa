#!/usr/bin/env bash
# Prints the packages that the race detector has something to find in: those whose code starts
# goroutines or shares memory between them, or whose tests start goroutines or whole nodes. Others
# only compute.
set -euo pipefail
cd "$(dirname "$0")/.."
starts='^\s*go |\bgo func|\.Go\(|AfterFunc|httptest\.New|"runlog/server/servertest"'
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
