package raft

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"runlog/testbed/bubble"
)

// breakWrites makes every write to the log's open segments fail, as a failing disk does: it
// replaces their descriptors by read-only ones.
func breakWrites(t *testing.T, dir string) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	broken := 0
	for _, e := range open {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || filepath.Dir(name) != dir || !strings.HasSuffix(name, ".wal") {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		reader, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(reader.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		broken++
	}
	if broken == 0 {
		t.Fatal("no open segment found")
	}
}

// TestLogWriteFailure proves D3 and D10: a failed write of the log stops the node, Fail is called
// once, and the outcome of the proposal is unknown. Nothing is acknowledged later, whatever
// hashicorp/raft does.
func TestLogWriteFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		dir, err := filepath.EvalSymlinks(b.wal())
		if err != nil {
			t.Fatal(err)
		}
		breakWrites(t, dir)
		f, err := propose(b.node, seal(t, request("run", 3, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if o, err := waitFor(t, f); !errors.Is(err, ErrUnknown) {
			t.Errorf("outcomes %+v, error %v", o, err)
		}
		time.Sleep(300 * time.Millisecond) // Several elections, each of which writes to the log.
		if f := b.failures(); len(f) == 0 || !strings.Contains(f[0].Error(), "write log entries") {
			t.Errorf("Fail was told %v", f)
		}
		if _, err := propose(b.node, seal(t, request("run", 4, 1))); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a proposal to a stopped node gives %v", err)
		}
		if err := b.node.ConfirmLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a stopped node confirms that it leads: %v", err)
		}
		b.stop()
		b.start().expect("run", 3)
	})
}
