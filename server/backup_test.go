package server

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/backup"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// source is a client's way to a node's backups.
func (n *node) source(ctx context.Context) backup.Source {
	n.t.Helper()
	c, err := client.Dial(n.server.Addresses().GRPC, client.Options{MaxAttempts: 1, Timeout: patience})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return c.Backup(ctx, req)
	}
}

// backUp takes a backup of the node.
func (n *node) backUp(repo *backup.Repository) *backup.Taken {
	n.t.Helper()
	taken, err := repo.Take(n.source(n.context()), backup.TakeOptions{})
	if err != nil {
		n.t.Fatalf("back up %s: %v", n.opts.NodeID, err)
	}
	return taken
}

// restored makes a node of the newest backup, which is not started yet.
func restored(t testing.TB, repo *backup.Repository) *node {
	t.Helper()
	n := &node{t: t, opts: testOptions(t)}
	n.opts.DataDir = filepath.Join(t.TempDir(), "restored")
	r, err := Restore(t.Context(), RestoreOptions{Options: n.opts, Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	n.opts.NodeID = r.NodeID
	t.Cleanup(n.close)
	return n
}

// TestBackupRestoreIDM6 proves that a restored cluster goes on where the backup ended: the same records, answers to
// duplicates byte by byte, runSeq, persistedAt and chains, also when its clock is behind; and that others join it.
func TestBackupRestoreIDM6(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	repo := backup.Open(nil, filepath.Join(t.TempDir(), "backups"))
	var answers []*runlogv1.AppendEventsResponse
	for i := range 20 {
		answers = append(answers, all[i%3].mustAppend("run", numbered(i)))
	}
	all.wantSame("run", 20)
	for _, n := range append(all.followers(), all.leader()) {
		n.backUp(repo)
	}
	list, err := repo.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("%d backups, %v", len(list), err)
	}
	before := all[0].local("run", 20)
	stamp := before[19].PersistedAt.AsTime()
	old := all[0].opts
	all.close()

	n := restored(t, repo)
	n.start()
	if id := n.server.cluster.Identity().ClusterID; id == "" || id == all[0].opts.NodeID {
		t.Errorf("cluster id %q", id)
	}
	after := n.local("run", 20)
	if len(after) != 20 {
		t.Fatalf("%d events", len(after))
	}
	for i := range after {
		wantProto(t, "record", after[i], before[i])
	}
	for i := range 20 {
		got := n.append("run", numbered(i))
		if !got.Results[0].Idempotent || got.Results[0].RunSeq != answers[i].Results[0].RunSeq ||
			!proto.Equal(got.Results[0].PersistedAt, answers[i].Results[0].PersistedAt) || got.Results[0].EventId != answers[i].Results[0].EventId {
			t.Errorf("duplicate %d: %v, was %v", i, got.Results[0], answers[i].Results[0])
		}
	}
	next := n.append("run", numbered(20))
	if next.LastSeq != 21 || !next.Results[0].PersistedAt.AsTime().After(stamp) {
		t.Errorf("next event: %v after %v", next, stamp)
	}
	n.opts.NodeID = ""
	n.restart()
	wantEqual(t, "last", n.append("run", numbered(21)).LastSeq, 22)

	young := &node{t: t, opts: testOptions(t)}
	young.opts.NodeID, young.opts.Join = "young", []string{n.server.Addresses().Raft}
	young.start()
	t.Cleanup(young.close)
	nodes{n, young}.wantSame("run", 22)
	_ = old
	_ = os.Getpid
}
