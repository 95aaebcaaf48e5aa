package servertest

import (
	"iter"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/offline"
	"runlog/storage/backup"
)

// Source is a client's way to a node's backups.
func (n *Node) Source() backup.Source {
	n.T.Helper()
	c, err := client.Dial(n.Server.Addresses().GRPC, client.Options{MaxAttempts: 1, Timeout: Patience, DialOptions: []grpc.DialOption{n.Dialer()}})
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { _ = c.Close() })
	return func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return c.Backup(n.Context(), req)
	}
}

// BackUp takes a backup of the node.
func (n *Node) BackUp(repo *backup.Repository) *backup.Taken {
	n.T.Helper()
	taken, err := repo.Take(n.Source(), backup.TakeOptions{})
	if err != nil {
		n.T.Fatalf("back up %s: %v", n.Opts.NodeID, err)
	}
	return taken
}

// NewRepository returns an empty repository of backups in a folder of the test.
func NewRepository(t testing.TB) *backup.Repository {
	return backup.Open(nil, filepath.Join(t.TempDir(), "backups"))
}

// RestoredFrom makes a node from a backup (empty: the newest) and does not start it.
func RestoredFrom(t testing.TB, repo *backup.Repository, name string, change func(*server.Options)) *Node {
	t.Helper()
	return restored(t, offline.RestoreOptions{Repository: repo, Backup: name}, change)
}

// HeldFrom is RestoredFrom with the newest backup, for a node that is held.
func HeldFrom(t testing.TB, repo *backup.Repository, change func(*server.Options)) *Node {
	t.Helper()
	return restored(t, offline.RestoreOptions{Repository: repo, StartPaused: true}, change)
}

func restored(t testing.TB, opts offline.RestoreOptions, change func(*server.Options)) *Node {
	t.Helper()
	n := &Node{T: t, Opts: DiskOptions(t)}
	n.Opts.DataDir = filepath.Join(t.TempDir(), "restored")
	if change != nil {
		change(&n.Opts)
	}
	opts.Options = OfflineOptions(n.Opts)
	r, err := offline.Restore(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if n.Opts.NodeID != "" && n.Opts.NodeID != r.NodeID {
		t.Errorf("node %q, want %q", r.NodeID, n.Opts.NodeID)
	}
	t.Cleanup(n.Close)
	return n
}

// OfflineOptions are those with which a node's directory is worked on.
func OfflineOptions(o server.Options) offline.Options {
	return offline.Options{DataDir: o.DataDir, FS: o.FS, NodeID: o.NodeID, RaftAddress: o.RaftListen, Store: o.Store,
		SegmentBytes: o.Raft.SegmentBytes, Logger: o.Logger, Fail: o.Fail}
}
