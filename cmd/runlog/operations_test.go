package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOperations runs the console blocks of docs/operations.md as they are written, against a
// cluster of three nodes.
func TestOperations(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, 3)
	servers := make([]string, len(nodes))
	for i, n := range nodes {
		servers[i] = n.Addresses().GRPC
	}
	dir := t.TempDir()
	sh := shell{t: t, env: append(os.Environ(), asRunlog+"=1", "RUNLOG_SERVER="+strings.Join(servers, ","),
		"BACKUPS="+filepath.Join(dir, "backups"), "RESTORED="+filepath.Join(dir, "restored"),
		"PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))}
	for _, s := range readConsole(t, filepath.Join("..", "..", "docs", "operations.md")) {
		got := sh.run(s.command)
		if want, have := steady(s.want), steady(got); !matches(want, have) {
			t.Errorf("line %d: $ %s\nprinted:\n%s\nthe document says:\n%s", s.line, s.command, have, want)
		}
	}
}
