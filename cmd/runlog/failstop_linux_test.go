package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runlog/client/command/output"
)

// TestWriteErrorStopsTheProcessD10: when the file system refuses a write, the process acknowledges
// no append any more, and stops itself with an exit code and a last line that say why. Started
// again, it has everything that was acknowledged, and takes what had no answer (APP-2, APP-10).
func TestWriteErrorStopsTheProcessD10(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		size uint64 // in bytes; no file may grow beyond it
	}{
		{"a small node whose flushes fail too", smallEnv, 4 << 10},
		{"a node whose log cannot be written", ordinaryEnv, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := smallCluster(t, 1, 4)
			n := c.Nodes()[0]
			n.Stop()
			n.Env = test.env
			n.Start()
			n.Ready()
			c.AwaitAck(50)
			n.ExpectEnd()
			limit := unix.Rlimit{Cur: test.size, Max: test.size}
			if err := unix.Prlimit(n.PID(), unix.RLIMIT_FSIZE, &limit, nil); err != nil {
				t.Fatal(err)
			}
			if code, _ := n.Ended(); code != int(output.ExitFailed) {
				t.Errorf("exit code %d, want %d", code, output.ExitFailed)
			}
			if said := n.Said(); !strings.Contains(said, unix.EFBIG.Error()) || strings.Contains(said, "goroutine ") {
				t.Errorf("it said:\n%s", said)
			}
			n.Start()
			n.Ready()
			c.AwaitAck(20)
			t.Log(c.Settle())
		})
	}
}
