//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestBackupRestoreNodes proves APP-2, APP-5, APP-11 and IDM-6 across a backup and a restore, in
// processes: while a cluster works, and backups of it are killed, followers and the leader are
// backed up; of each backup comes a cluster that has what was acknowledged up to its position, once
// and with the same answers, and that goes on, with two more nodes.
func TestBackupRestoreNodes(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 4)
	l.begin()
	repo := filepath.Join(t.TempDir(), "backups")
	var last backupLine
	for range clusterRounds(t, 2) {
		leader := c.leader()
		for _, n := range append(c.followers(leader), leader) {
			l.awaitAck(time.Now())
			killLater(t, runlogCommand(nil, "backup", repo, "--server", n.grpc))
			runJSON(t, &last, "backup", repo, "--server", n.grpc)
		}
	}
	l.awaitAck(time.Now())
	l.settle()
	var again struct{ KnownFiles int }
	idle := c.any()
	for try := 0; again.KnownFiles == 0 && try < 10; try++ { // compactions come to an end
		runJSON(t, &again, "backup", repo, "--server", idle.grpc)
	}
	if again.KnownFiles == 0 {
		t.Error("every file was sent every time")
	}
	runJSON(t, &struct{}{}, "backup", "verify", repo)
	restored := &procCluster{t: t, small: true}
	t.Cleanup(restored.tell)
	first := restored.newNode("r1")
	for range 3 {
		killLater(t, runlogCommand(nil, "restore", repo, "--data-dir", first.dir, "--node-id", "r1"))
		if _, err := os.Stat(first.dir); err == nil {
			// It was faster.
			if err := os.RemoveAll(first.dir); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	var made struct {
		NodeID, ClusterID string
		Backup            backupLine
	}
	runJSON(t, &made, "restore", filepath.Join(repo, last.Name), "--data-dir", first.dir, "--node-id", "r1")
	if made.NodeID != "r1" || made.Backup.Name != last.Name || made.ClusterID == last.ClusterID {
		t.Errorf("%+v", made)
	}
	first.start()
	first.ready(t)

	through, err := time.Parse(time.RFC3339Nano, last.CompleteThrough)
	if err != nil {
		t.Fatal(err)
	}
	after := newClusterLoad(t, restored, 4)
	// streams go on with runs of their own
	after.ledger, after.streams = l.ledger.upTo(through), l.streams+4
	for _, w := range after.writers {
		w.name = "restored-" + w.name
	}
	after.verify()
	for _, name := range []string{"r2", "r3"} {
		n := restored.newNode(name)
		n.flags = []string{"--join", first.raft}
		n.start()
		n.ready(t)
		restored.awaitVoter(n)
	}
	after.begin()
	after.awaitAck(time.Now())
	first.kill()
	after.awaitAck(time.Now())
	first.start()
	first.ready(t)
	after.verify()
}

// upTo is what a cluster knows that goes on from a backup which has everything that was stamped
// until then.
func (l *clusterLedger) upTo(through time.Time) *clusterLedger {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := newClusterLedger(l.t)
	old.stamp = through.UnixNano()
	later := 0
	for run, known := range l.runs {
		kept := old.runLocked(run)
		kept.never = known.never
		for step, e := range known.acked {
			if e.result.PersistedAt.AsTime().After(through) {
				later++
				continue
			}
			kept.acked[step] = e
			kept.floor = max(kept.floor, e.result.RunSeq)
		}
	}
	if later == 0 || old.stamp == 0 {
		l.t.Error("nothing came after the backup: the test proves little")
	}
	return old
}

// runJSON runs a command line in a process of its own, which must succeed, and reads the last line
// that it prints.
func runJSON(t *testing.T, to any, args ...string) {
	t.Helper()
	cmd := runlogCommand(nil, append(args, "-o", "json")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, to)
	}
	if err != nil {
		t.Fatalf("runlog %q: %v\n%s%s", args, err, out, errs.String())
	}
}

// killLater starts a process and kills it, by its id, a while later; it may have ended before.
func killLater(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
