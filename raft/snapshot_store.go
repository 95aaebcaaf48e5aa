package raft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/storage"
)

// snapshotStore is where hashicorp/raft puts snapshots and takes them from. What lies on disk of a
// snapshot is a record of it, in the small file "snapshots": the data is the store (D5). So there
// are three things that hashicorp/raft takes for one:
//
//   - a local snapshot, by which the log may be dropped: Persist records its metadata;
//   - the snapshot that a far-behind follower is sent: Open makes a checkpoint of now, and tells
//     its index;
//   - the snapshot that comes from a leader: the sink hands it to the store, and Restore installs
//     it.
//
// docs/adr/0006-snapshots.md tells why the indexes fit.
type snapshotStore struct {
	disk   vfs.FS
	dir    string
	store  *storage.Store
	logs   *wal.Log // is told after which snapshot it begins
	stable *wal.Stable

	// streams counts the checkpoints that are being sent, by hashicorp/raft or outside of it
	// (HoldLog).
	streams atomic.Int64

	mu struct {
		sync.Mutex
		records []snapshotRecord // the newest first; what the file says
		// what comes from a leader, from its first byte until Restore has ended
		incoming *snapshotSink
	}
}

var _ hraft.SnapshotStore = (*snapshotStore)(nil)

// errInstalling says that no local snapshot can be recorded while one from a leader comes in:
// hashicorp/raft would go on from whichever ends last.
var errInstalling = errors.New("raft: a snapshot is being installed")

// snapshotRecord is what is kept of a snapshot.
type snapshotRecord struct {
	// Meta is hashicorp/raft's.
	Meta hraft.SnapshotMeta `json:"meta"`
	snapshotMeta
}

// snapshotMeta is what is kept of a snapshot beside hashicorp/raft's own metadata.
type snapshotMeta struct {
	// Applied is the index that the store held on stable storage when the snapshot was recorded.
	Applied uint64 `json:"applied"`
	// Installed says that the snapshot came from a leader, so that the log may begin after it,
	// empty.
	Installed bool `json:"installed,omitempty"`
}

const (
	snapshotsFile = "snapshots"
	// snapshotsKept has room for one that hashicorp/raft has listed, and opens when there is a
	// newer one.
	snapshotsKept = 2
)

// drop is how far the newest snapshot allowed the log to be dropped; zero without one.
type drop struct {
	wal.EntryID
	meta snapshotMeta
}

// load reads what was recorded.
func (s *snapshotStore) load() error {
	path := s.disk.PathJoin(s.dir, snapshotsFile)
	body, err := wal.ReadSummed(s.disk, path)
	if err == nil && body != nil {
		if err = json.Unmarshal(body, &s.mu.records); err != nil {
			err = fmt.Errorf("%s: %w; %s", path, err, wal.Advice)
		}
	}
	if err != nil {
		return fmt.Errorf("raft: read the records of snapshots: %w", err)
	}
	return nil
}

// newest returns what the newest snapshot says.
func (s *snapshotStore) newest() drop {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.records) == 0 {
		return drop{}
	}
	r := &s.mu.records[0]
	return drop{EntryID: wal.EntryID{Index: r.Meta.Index, Term: r.Meta.Term}, meta: r.snapshotMeta}
}

// List returns the snapshots, the newest first.
func (s *snapshotStore) List() ([]*hraft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*hraft.SnapshotMeta, len(s.mu.records))
	for i := range list {
		meta := s.mu.records[i].Meta
		list[i] = &meta
	}
	return list, nil
}

// Create begins a snapshot, a local one or one that comes: what is done with the sink tells which.
//
// A leader that was deposed may still be sending, and what it applied since can be of a later term
// than the one it sends in, which this node has been told of. With such a snapshot the log would
// end in a term that this node has never been in; the leader of that term will send another.
func (s *snapshotStore) Create(version hraft.SnapshotVersion, index, term uint64, members hraft.Configuration,
	membersIndex uint64, _ hraft.Transport) (hraft.SnapshotSink, error) {
	if now := s.stable.Term(); term > now {
		return nil, fmt.Errorf("raft: a snapshot that ends in term %d came in term %d: its sender does not lead any more", term, now)
	}
	return &snapshotSink{s: s, id: fmt.Sprintf("incoming-%d-%d", term, index), meta: hraft.SnapshotMeta{
		Version: version, Index: index, Term: term, Configuration: members, ConfigurationIndex: membersIndex,
	}}, nil
}

// record keeps the metadata of a snapshot, whose data the store has on stable storage, and returns
// its id.
func (s *snapshotStore) record(m *hraft.SnapshotMeta, meta snapshotMeta) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordLocked(m, meta)
}

func (s *snapshotStore) recordLocked(m *hraft.SnapshotMeta, meta snapshotMeta) (string, error) {
	r := snapshotRecord{Meta: *m, snapshotMeta: meta}
	r.Meta.ID = fmt.Sprintf("%d-%d-%d", m.Term, m.Index, meta.Applied)
	if meta.Installed {
		r.Meta.ID += "-installed"
	}
	records := append([]snapshotRecord{r}, s.mu.records[:min(len(s.mu.records), snapshotsKept-1)]...)
	body, err := json.Marshal(records)
	if err == nil {
		err = wal.ReplaceSummed(s.disk, s.dir, snapshotsFile, body)
	}
	if err != nil {
		return "", fmt.Errorf("raft: record a snapshot: %w", err)
	}
	s.mu.records = records
	return r.Meta.ID, nil
}

// Open opens the snapshot that Restore is to install, or, for a follower, a checkpoint of now.
func (s *snapshotStore) Open(id string) (*hraft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	in := s.mu.incoming
	s.mu.Unlock()
	if in != nil && in.id == id {
		// The bytes are with the store. What Restore reads is only their name.
		return &in.meta, io.NopCloser(strings.NewReader(id)), nil
	}
	list, _ := s.List() // never fails
	i := slices.IndexFunc(list, func(m *hraft.SnapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("raft: there is no snapshot %s any more", id)
	}
	meta := list[i]
	c, err := s.store.Checkpoint()
	if err != nil {
		return nil, nil, err
	}
	if err := describe(meta, c); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	s.streams.Add(1)
	return meta, &outgoing{Reader: c.Stream(), s: s, c: c}, nil
}

// describe turns the metadata of the newest local snapshot into those of a checkpoint.
//
// A checkpoint reaches at least as far as the store did then. Where it does not reach past the
// snapshot's own index, what lies between are entries that are none of the store's, so that it is
// the state at that index too; and the log may begin right after that index, so that it must be
// told.
func describe(meta *hraft.SnapshotMeta, c *storage.Checkpoint) error {
	meta.Size = c.Size()
	if c.Applied.Index <= meta.Index {
		return nil
	}
	if c.Membership.Index == 0 {
		return errors.New("raft: the store does not know who belongs to the group; change that once")
	}
	meta.Index, meta.Term, meta.Peers = c.Applied.Index, c.Applied.Term, nil
	meta.Configuration, meta.ConfigurationIndex = hraft.DecodeConfiguration(c.Membership.Data), c.Membership.Index
	return nil
}

// outgoing is a checkpoint that is being sent.
type outgoing struct {
	io.Reader
	s *snapshotStore
	c *storage.Checkpoint
}

func (o *outgoing) Close() error {
	o.s.streams.Add(-1)
	return o.c.Close()
}

// install makes the snapshot that came under an id the store. It is called by the goroutine that
// applies.
func (s *snapshotStore) install(id string) error {
	s.mu.Lock()
	in := s.mu.incoming
	s.mu.Unlock()
	if in == nil || in.id != id {
		return fmt.Errorf("raft: no snapshot %q has come", id)
	}
	defer s.end(in)
	if err := in.received.Install(); err != nil {
		if errors.Is(err, storage.ErrOlder) {
			in.received.Discard()
		}
		return err
	}
	// A crash before this is on stable storage is mended by finishInstall.
	if _, err := s.record(&in.meta, snapshotMeta{Applied: in.received.Applied.Index, Installed: true}); err != nil {
		return err
	}
	s.logs.BeginAfter(wal.EntryID{Index: in.meta.Index, Term: in.meta.Term})
	return nil
}

// end forgets what came in.
func (s *snapshotStore) end(k *snapshotSink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.incoming == k {
		s.mu.incoming = nil
	}
}

// close discards what came in and was not installed. hashicorp/raft has stopped.
func (s *snapshotStore) close() {
	if in := s.mu.incoming; in != nil && in.received != nil {
		in.received.Discard()
	}
}
