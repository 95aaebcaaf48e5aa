package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestEveryTableIsDamagedD10: a node whose tables have all become unreadable reports it with the
// remedy, however it came to read one of them. It reads no table to find the remedy.
func TestEveryTableIsDamagedD10(t *testing.T) {
	t.Parallel()
	var reported atomic.Value
	n := startNode(t, func(o *Options) {
		o.Store.CacheBytes = 1
		o.Fail = func(err error) { reported.CompareAndSwap(nil, err.Error()) }
	})
	n.append("run", append(steps("a", 100), newEvent("RunStarted"))...)
	if err := n.server.replica.Node().Truncate(); err != nil { // It flushes the store.
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(n.opts.DataDir, "store", "*", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		data, err := os.ReadFile(table)
		if errors.Is(err, os.ErrNotExist) {
			continue // A compaction has replaced it.
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] ^= 0x55
		}
		if err := os.WriteFile(table, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL}); err == nil {
		t.Error("damaged events are read")
	}
	said, _ := reported.Load().(string)
	if !strings.Contains(said, n.opts.DataDir) || !strings.Contains(said, "this is the only voter") {
		t.Errorf("the node reports %q", said)
	}
}
