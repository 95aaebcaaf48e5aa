package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
)

// TestEveryTableIsDamagedD10: a node whose tables have all become unreadable reports it with the
// remedy, however it came to read one of them. It reads no table to find the remedy.
func TestEveryTableIsDamagedD10(t *testing.T) {
	t.Parallel()
	var reported atomic.Value
	n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) {
		o.Store.CacheBytes = 1
		o.Fail = func(err error) { reported.CompareAndSwap(nil, err.Error()) }
	})
	n.Append("run", append(servertest.Steps("a", 100), servertest.NewEvent("RunStarted"))...)
	if err := n.Server.Internals().Replica.Node().Truncate(); err != nil { // It flushes the store.
		t.Fatal(err)
	}
	damaged := map[string]int{}
	list := &runlogv1.ListEventsRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL}
	for { // A compaction that is under way makes other tables.
		damageTables(t, n.Opts.DataDir, damaged)
		if _, err := n.Events.ListEvents(n.Context(), list); err != nil {
			break
		}
	}
	said, _ := reported.Load().(string)
	if !strings.Contains(said, n.Opts.DataDir) || !strings.Contains(said, "this is the only voter") {
		t.Errorf("the node reports %q", said)
	}
}

// damageTables damages the tables of a store. damaged has how many bytes of each are damaged: a
// compaction may be writing a table.
func damageTables(t testing.TB, dir string, damaged map[string]int) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "store", "*", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		switch size, err := damage(table, damaged[table]); {
		case err == nil:
			damaged[table] = size
		case !errors.Is(err, os.ErrNotExist): // Otherwise a compaction has replaced it.
			t.Fatal(err)
		}
	}
}

// damage changes each byte of a file from an offset on, and returns its size. The file is never
// shorter meanwhile.
func damage(path string, from int) (size int, err error) {
	data, err := os.ReadFile(path)
	if err != nil || len(data) <= from {
		return len(data), err
	}
	for i := from; i < len(data); i++ {
		data[i] ^= 0x55
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteAt(data[from:], int64(from))
	return len(data), errors.Join(err, f.Close())
}
