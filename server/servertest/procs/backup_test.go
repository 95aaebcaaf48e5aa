//go:build unix

package procs

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

	"runlog/server/servertest/history"
	"runlog/testbed/seed"
)

// TestBackupRestoreNodes proves APP-2, APP-5, APP-11 and IDM-6 across a backup and a restore: while
// a cluster works, all nodes are backed up, the leader last, and other backups are killed. The
// restored node has what was acknowledged before the backup, once and with the same answers. Two
// nodes join it, and the cluster continues.
func TestBackupRestoreNodes(t *testing.T) {
	t.Parallel()
	rng := seed.Rand(t)
	c := newCluster(t, Options{Seed: *seedFlag})
	c.Work(6)
	repo := filepath.Join(t.TempDir(), "backups")
	type backup struct {
		Name, ClusterID string
		KnownFiles      int
	}
	var last, again backup
	var before *history.History
	leader := c.Leader()
	for _, n := range append([]*Node{leader}, c.Nodes()...) {
		c.AwaitAck(10)
		if n == leader && before != nil {
			continue
		}
		killLater(t, rng, exec.Command(n.Binary, "backup", repo, "--server", n.grpc))
		before = c.clients.History()
		runJSON(t, &last, n.Binary, "backup", repo, "--server", n.grpc)
	}
	before = backedUp(before, c.clients.History())
	c.AwaitAck(20)
	t.Log(c.Settle())
	for try := 0; again.KnownFiles == 0 && try < 10; try++ { // Compactions come to an end.
		runJSON(t, &again, leader.Binary, "backup", repo, "--server", leader.grpc)
	}
	if again.KnownFiles == 0 {
		t.Error("every file was sent every time")
	}
	runJSON(t, &struct{}{}, leader.Binary, "backup", "verify", repo)

	restored := New(t, Options{Binary: binary(t), Seed: *seedFlag + 1, Before: before, OldKeys: 1, Keep: *keepFlag})
	first := restored.Nodes()[0]
	for range 3 {
		killLater(t, rng, exec.Command(first.Binary, "restore", repo, "--data-dir", first.Dir, "--node-id", first.Name))
		if _, err := os.Stat(first.Dir); err == nil {
			err = os.RemoveAll(first.Dir) // The restore was faster.
			if err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	var made struct {
		NodeID, ClusterID string
		Backup            backup
	}
	runJSON(t, &made, first.Binary, "restore", filepath.Join(repo, last.Name), "--data-dir", first.Dir, "--node-id", first.Name)
	if made.NodeID != first.Name || made.Backup.Name != last.Name || made.ClusterID == last.ClusterID {
		t.Errorf("%+v", made)
	}
	first.flags = nil
	first.Start()
	first.Ready()
	for _, n := range restored.Nodes()[1:] {
		n.flags = n.joining([]string{first.grpc}, []string{first.raft})
		n.Start()
		n.Ready()
	}
	restored.awaitVoters()
	restored.Work(6)
	restored.AwaitAck(20)
	first.Kill()
	restored.AwaitAck(20)
	first.Start()
	t.Log(restored.Settle())
}

// backedUp returns what is known of a backup that was taken between two moments of one history. A
// call that was answered before has its answer. Of a later append it is unknown whether the backup
// has it.
func backedUp(before, after *history.History) *history.History {
	h := &history.History{Ops: before.Ops}
	for _, op := range after.Ops[len(before.Ops):] {
		if len(op.Appends) == 0 {
			continue
		}
		for i := range op.Appends {
			a := &op.Appends[i]
			a.Outcome, a.LastSeq, a.Results = history.Outcome{}, 0, nil
		}
		op.Return = 0
		h.Ops = append(h.Ops, op)
	}
	return h
}

// runJSON runs a command that must succeed, and decodes the last line that it prints.
func runJSON(t *testing.T, to any, binary string, args ...string) {
	t.Helper()
	cmd := exec.Command(binary, append(args, "-o", "json")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, to)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, errs.String())
	}
}

// killLater starts a process and kills it a while later; it may have ended before.
func killLater(t *testing.T, rng *rand.Rand, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	Pass(time.Duration(20+rng.IntN(150)) * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
