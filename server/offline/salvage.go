package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"runlog/audit/export"
	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/checkpoint"
	"runlog/server/cluster"
	"runlog/server/datadir"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine"
)

// ErrNothingToSalvage means that no leader has asked the node to drop what it has applied.
var ErrNothingToSalvage = errors.New("server: nothing to salvage")

// salvagePage is how many events are read at a time.
const salvagePage = 256

// SalvageOptions name the node, and where its events go.
type SalvageOptions struct {
	Options
	// From is the first log entry of which the events are written; 0: the first that a leader has
	// asked the node to drop.
	From uint64
	// Out gets an export in JSON lines (audit/export). Required.
	Out io.Writer
}

// Salvaged describes what a salvage has written.
type Salvaged struct {
	NodeID, ClusterID string
	// First and Last entry of the log of which the events were written. Entries after Applied were
	// in the log alone: it is not known whether they were acknowledged.
	First, Last, Applied uint64
	Events               uint64
	// Signer is the public key of the signature; empty: the node has no key.
	Signer string
}

// Salvage writes the events that a stopped node has and that the other members have lost: those
// from the first entry on that a leader has asked it to drop. It first applies the rest of the
// node's log. What is not an event, such as labels of runs, is not written.
func Salvage(opts SalvageOptions) (s *Salvaged, err error) {
	opts.EnsureDefaults()
	// Opening a directory without an identity would make a new node.
	if _, err := opts.FS.Stat(opts.FS.PathJoin(opts.DataDir, "identity.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory %s has no identity.json: there is nothing to salvage; name the --data-dir of the node", opts.DataDir)
	}
	dir, err := datadir.Open(opts.FS, opts.DataDir, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Release()) }()
	me := dir.Identity()
	id, err := me.Cluster()
	if err != nil {
		return nil, err
	}
	first := opts.From
	if first == 0 {
		d, err := raft.ReadDivergence(opts.FS, dir.File("raft"))
		if err != nil {
			return nil, err
		}
		if d == nil {
			return nil, fmt.Errorf("%w: no leader has asked node %s to drop what it has applied; "+
				"if its last line said so under another name, name the first entry with --from-entry", ErrNothingToSalvage, me.NodeID)
		}
		first = d.First
	}
	store, err := openStore(&opts.Options, dir, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s = &Salvaged{NodeID: me.NodeID, ClusterID: me.ClusterID, First: first, Applied: store.Applied().Index}
	if err := replay(&opts.Options, dir, &me, store); err != nil {
		return nil, err
	}
	s.Last = store.Applied().Index
	return s, s.write(&opts, dir, id, store)
}

func openStore(opts *Options, dir *datadir.Dir, id storage.ClusterID) (*storage.Store, error) {
	o := opts.Store
	machine.EnsureDefaults(&o)
	o.FS, o.Dir, o.Cluster, o.Logger, o.Fail = opts.FS, dir.File("store"), id, opts.Logger, opts.Fail
	return storage.Open(o)
}

// replay applies what the log has beyond the store.
func replay(opts *Options, dir *datadir.Dir, me *cluster.Identity, store *storage.Store) error {
	return raft.Replay(raft.Options{
		FS: opts.FS, Dir: dir.File("raft"), NodeID: me.RaftID(), Listener: newUnreached(), Store: store, Fail: opts.Fail, Logger: opts.Logger,
		SegmentBytes: opts.SegmentBytes,
	})
}

// write writes the events and the manifest, signed if the node has the cluster's key.
func (s *Salvaged) write(opts *SalvageOptions, dir *datadir.Dir, id storage.ClusterID, store *storage.Store) error {
	out, err := export.NewWriter(export.JSONLines, opts.Out)
	if err != nil {
		return err
	}
	var tally export.Tally
	st := proof.Export{Cluster: id, CompleteThrough: store.Applied().PersistedAt, Position: s.Last}
	err = eachRecord(store, s.First, s.Last, func(r *export.Record) error {
		if tally.Count == 0 {
			st.From = r.PersistedAt
		}
		st.To = r.PersistedAt + 1
		tally.Add(r)
		return out.Write(r)
	})
	if err != nil {
		return err
	}
	if s.Events = tally.Count; s.Events == 0 {
		return fmt.Errorf("%w: entries %d to %d have no event", ErrNothingToSalvage, s.First, s.Last)
	}
	st.Count, st.Digest = tally.Count, tally.Digest
	manifest := proof.Unsigned(st.Statement())
	signer, err := checkpoint.HeldSigner(opts.FS, dir.File(datadir.KeyFile), id, store)
	if err != nil {
		opts.Logger.Warn("cannot read the signing key; the file is not signed", "err", err)
	}
	if signer != nil {
		if manifest, err = signer.Sign(st.Statement()); err != nil {
			return err
		}
		s.Signer = signer.PublicKey()
	}
	return out.Close(manifest)
}

// eachRecord passes on the events of a range of entries in commit order.
func eachRecord(store *storage.Store, first, last uint64, do func(*export.Record) error) (err error) {
	r, err := store.OpenWindow(storage.PositionRange{First: storage.Position(first), End: storage.Position(last + 1)},
		storage.WindowFilter{}, storage.WindowCursor{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for more := true; more; {
		var records []storage.Record
		if records, more, err = r.Next(salvagePage); err != nil {
			return err
		}
		for i := range records {
			m, err := wire.Record(&records[i], runlogv1.PayloadForm_JSON)
			if err != nil {
				return err
			}
			var record export.Record
			if err := record.Take(m); err != nil {
				return err
			}
			if err := do(&record); err != nil {
				return err
			}
		}
	}
	return nil
}
