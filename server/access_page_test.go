package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/testbed/bubble"
)

// accessPage has the table of access for readers, between two marks.
var accessPage = filepath.Join("..", "docs", "access.md")

const (
	callsBegin = "<!-- calls: UPDATE_MATRIX=1 go test ./server -run TestAccessPageSEC3 writes this table -->\n"
	callsEnd   = "<!-- end of calls -->\n"
)

// TestAccessPageSEC3: docs/access.md has the table of methods and roles as the node has it.
func TestAccessPageSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		golden, err := os.ReadFile(matrixGolden)
		if err != nil {
			t.Fatal(err)
		}
		var table strings.Builder
		table.WriteString("\n| call | roles, one of | for |\n|---|---|---|\n")
		for line := range strings.Lines(string(golden)) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			roles := "`" + strings.Join(strings.Fields(strings.ToLower(cells[1])), "`, `") + "`"
			if strings.Count(cells[1], " ") == 4 {
				roles = "any"
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", cells[0], roles, cells[2])
		}
		table.WriteString("\n")
		page, err := os.ReadFile(accessPage)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(page), callsBegin)
		have, after, end := strings.Cut(rest, callsEnd)
		if !ok || !end {
			t.Fatal("docs/access.md has no place for the table of calls")
		}
		if os.Getenv("UPDATE_MATRIX") != "" {
			if err := os.WriteFile(accessPage, []byte(before+callsBegin+table.String()+callsEnd+after), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if have != table.String() {
			t.Error("docs/access.md is not the table of access: run the test with UPDATE_MATRIX=1")
		}
	})
}
