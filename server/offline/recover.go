package offline

import (
	"errors"
	"fmt"
	"io/fs"

	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/datadir"
)

// Recovery describes a recovered node.
type Recovery struct {
	NodeID, ClusterID string
	// Lost lists the other members that the node knew.
	Lost []string
	// LastIndex is the last index of its log.
	LastIndex uint64
}

// Recover makes the node of an unused data directory the only voter of its cluster, after the
// majority of the voters is lost permanently. docs/operations.md states when to use it.
func Recover(opts Options) (r *Recovery, err error) {
	opts.EnsureDefaults()
	// Opening a directory without an identity would make a new node.
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
	voters := 0
	defer func() { err = cluster.Remedy(err, opts.DataDir, me.NodeID, voters) }()
	store, err := openStore(&opts, dir, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	voters = cluster.Voters(store)
	group := raft.Options{
		FS: opts.FS, Dir: dir.File("raft"), NodeID: me.RaftID(), Listener: newUnreached(), Store: store, Fail: opts.Fail, Logger: opts.Logger,
		SegmentBytes: opts.SegmentBytes,
	}
	had, err := raft.Recover(group)
	if err != nil {
		return nil, err
	}
	// The node must not answer anything in the incarnation before.
	if err := raft.Replay(group); err != nil {
		return nil, err
	}
	r = &Recovery{NodeID: me.NodeID, ClusterID: me.ClusterID, LastIndex: had.LastIndex}
	for _, m := range had.Members {
		if m.ID != me.RaftID() {
			r.Lost = append(r.Lost, cluster.NodeIDOf(m.ID))
		}
	}
	// The node must not look for other nodes when it starts.
	me.Via, me.Founders = nil, nil
	return r, dir.Save(me)
}
