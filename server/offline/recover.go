package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/datadir"
	"runlog/storage"
	"runlog/storage/machine"
)

// Recovery is what a node had when it was made the only voter of its cluster.
type Recovery struct {
	NodeID, ClusterID string
	// Lost are the other members, as far as the node knew.
	Lost []string
	// LastIndex is the end of its log.
	LastIndex uint64
}

// Recover makes the node of a data directory, which no process uses, the only voter of its cluster,
// after the majority of the voters was lost for good: docs/operations.md tells when.
func Recover(opts Options) (r *Recovery, err error) {
	opts.EnsureDefaults()
	// Opening a directory that is no node's would make it one.
	if _, err := opts.FS.Stat(opts.FS.PathJoin(opts.DataDir, "identity.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory %s has no identity.json: there is nothing to recover; name the --data-dir of the node", opts.DataDir)
	}
	dir, err := datadir.Open(opts.FS, opts.DataDir, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Release()) }()
	me := dir.Identity()
	id, err := me.Cluster()
	if err != nil || !me.Started {
		return nil, errors.Join(err, fmt.Errorf("data directory %s: node %s has not taken part in a cluster: there is nothing to recover", opts.DataDir, me.NodeID))
	}
	storeOpts := opts.Store
	machine.EnsureDefaults(&storeOpts)
	storeOpts.FS, storeOpts.Dir, storeOpts.Cluster, storeOpts.Logger, storeOpts.Fail = opts.FS, dir.File("store"), id, opts.Logger, opts.Fail
	store, err := storage.Open(storeOpts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // nobody is talked to
	if err != nil {
		return nil, err
	}
	had, err := raft.Recover(raft.Options{
		FS: opts.FS, Dir: dir.File("raft"), NodeID: me.RaftID(), Listener: listener, Store: store, Fail: opts.Fail, Logger: opts.Logger,
		SegmentBytes: opts.SegmentBytes,
	})
	if err != nil {
		return nil, err
	}
	r = &Recovery{NodeID: me.NodeID, ClusterID: me.ClusterID, LastIndex: had.LastIndex}
	for _, m := range had.Members {
		if m.ID != me.RaftID() {
			r.Lost = append(r.Lost, cluster.NodeIDOf(m.ID))
		}
	}
	// It looks for nobody when it starts.
	me.Via, me.Founders = nil, nil
	return r, dir.Save(me)
}
