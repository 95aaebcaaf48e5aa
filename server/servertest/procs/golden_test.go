//go:build unix

package procs

import (
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"runlog/server/servertest/history"
)

var goldenFlag = flag.String("procs.golden", "", "make the golden data directory of that name, of this version; make golden sets it")

// Files of a golden directory.
const (
	goldenDirs    = "testdata/golden"
	goldenData    = "data.tar.gz"      // a node's data directory, as "n1"
	goldenHistory = "history.jsonl.gz" // what clients saw of it, and what it had
)

// TestMakeGolden makes a golden data directory, from a stopped cluster of one node with a few runs.
func TestMakeGolden(t *testing.T) {
	if *goldenFlag == "" {
		t.Skip("make golden")
	}
	c := newCluster(t, Options{Seed: 1, Nodes: 1, Pad: 40})
	c.Work(2)
	c.AwaitAck(60)
	c.Settle()
	n := c.Nodes()[0]
	n.Stop()
	to := filepath.Join(goldenDirs, *goldenFlag)
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	// The node makes the spare segment of the log again. The rest of the log is mostly zeros.
	if err := output(exec.Command("tar", "-C", filepath.Dir(n.Dir), "--exclude=spare", "--sparse", "--hole-detection=raw", "--owner=0", "--group=0",
		"-czf", filepath.Join(to, goldenData), filepath.Base(n.Dir))); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(to, goldenHistory))
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	c.finals[0].Node = *goldenFlag
	if err := errors.Join(history.Encode(zip, c.clients.History(), c.finals...), zip.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestGolden requires that this version opens the data directories of earlier ones, has all their
// records, gives the same answers, and takes appends (APP-2, IDM-6, READ-4, PRJ-1).
func TestGolden(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob(filepath.Join(goldenDirs, "*", goldenData))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden directories: %v", err)
	}
	for _, data := range dirs {
		t.Run(filepath.Base(filepath.Dir(data)), func(t *testing.T) {
			before, finals := readGolden(t, filepath.Join(filepath.Dir(data), goldenHistory))
			c := New(t, Options{Binary: binary(t), Nodes: 1, Before: before, Keep: *keepFlag})
			n := c.Nodes()[0]
			if err := output(exec.Command("tar", "-C", filepath.Dir(n.Dir), "-xzf", data)); err != nil {
				t.Fatal(err)
			}
			c.Start()
			now, err := c.clients.Finals(c.ctx)
			if err != nil {
				t.Fatal(err)
			}
			r := c.clients.Check(append(now, finals...))
			if !r.OK() || r.Counts["nodes"] != 2 || r.Counts["records"] == 0 {
				t.Error(r)
			}
			c.Work(2)
			c.AwaitAck(20)
			t.Log(c.Settle())
		})
	}
}

func readGolden(t *testing.T, path string) (*history.History, []*history.Final) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	h, finals, err := history.Decode(zip)
	if err != nil {
		t.Fatal(err)
	}
	return h, finals
}
