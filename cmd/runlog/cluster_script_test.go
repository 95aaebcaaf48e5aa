package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"runlog/testbed/await"
)

// TestClusterScript has `make cluster` start nodes, watch them for a moment and end them again.
func TestClusterScript(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(await.Context(t), "bash", filepath.Join("..", "..", "tools", "cluster.sh"))
	cmd.Env = append(os.Environ(), asRunlog+"=1", "RUNLOG="+filepath.Join(binDir(t), "runlog"), "CLUSTER_SECONDS=3", "TMPDIR="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{`(?m)^n3 +VOTER +(LEADER|FOLLOWER)`, `[1-9][0-9,]* inserted, .* 0 refused`, `(?m)^OK +one node leads`} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
