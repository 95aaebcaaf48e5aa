package raft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// snapshotStore is where hashicorp/raft puts snapshots and takes them from. What lies on disk of a snapshot
// is its metadata, in hashicorp's own file store: the data is the store (D5). So there are three things that
// hashicorp/raft takes for one:
//
//   - a local snapshot, by which the log may be dropped: Persist records its metadata;
//   - the snapshot that a far-behind follower is sent: Open makes a checkpoint of now, and tells its index;
//   - the snapshot that comes from a leader: the sink hands it to the store, and Restore installs it.
//
// docs/adr/0006-snapshots.md tells why the indexes fit.
type snapshotStore struct {
	files  *hraft.FileSnapshotStore
	store  *storage.Store
	logs   *logStore // is told after which snapshot it begins
	stable *stableStore

	// streams counts the checkpoints that are being sent, by hashicorp/raft or outside of it (HoldLog).
	streams atomic.Int64

	mu struct {
		sync.Mutex
		incoming *snapshotSink // what comes from a leader, from its first byte until Restore has ended
	}
}

// place is the end of a snapshot in the log.
type place struct{ index, term uint64 }

var _ hraft.SnapshotStore = (*snapshotStore)(nil)

// errInstalling says that no local snapshot can be recorded while one from a leader comes in: hashicorp/raft
// would go on from whichever ends last.
var errInstalling = errors.New("raft: a snapshot is being installed")

// snapshotMeta is all that is kept of a snapshot beside hashicorp/raft's own metadata.
type snapshotMeta struct {
	// Applied is the index that the store held on stable storage when the snapshot was recorded.
	Applied uint64 `json:"applied"`
	// Installed says that the snapshot came from a leader, so that the log may begin after it, empty.
	Installed bool `json:"installed,omitempty"`
}

// drop is how far the newest snapshot allowed the log to be dropped; zero without one.
type drop struct {
	place
	meta snapshotMeta
}

// newest returns what the newest snapshot says.
func (s *snapshotStore) newest() (drop, error) {
	list, err := s.List()
	if err != nil {
		return drop{}, fmt.Errorf("raft: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return drop{}, nil
	}
	_, r, err := s.files.Open(list[0].ID)
	if err != nil {
		return drop{}, fmt.Errorf("raft: open snapshot %s: %w", list[0].ID, err)
	}
	d := drop{place: place{list[0].Index, list[0].Term}}
	if err := errors.Join(json.NewDecoder(r).Decode(&d.meta), r.Close()); err != nil {
		return drop{}, fmt.Errorf("raft: read snapshot %s: %w", list[0].ID, err)
	}
	return d, nil
}

// List is hashicorp/raft's.
func (s *snapshotStore) List() ([]*hraft.SnapshotMeta, error) { return s.files.List() }

// Create begins a snapshot, a local one or one that comes: what is done with the sink tells which.
//
// A leader that was deposed may still be sending, and what it applied since can be of a later term than the one
// it sends in, which this node has been told of. With such a snapshot the log would end in a term that this node
// has never been in; the leader of that term will send another.
func (s *snapshotStore) Create(version hraft.SnapshotVersion, index, term uint64, members hraft.Configuration,
	membersIndex uint64, _ hraft.Transport) (hraft.SnapshotSink, error) {
	now, err := s.stable.GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return nil, err
	}
	if term > now {
		return nil, fmt.Errorf("raft: a snapshot that ends in term %d came in term %d: its sender does not lead any more", term, now)
	}
	return &snapshotSink{s: s, id: fmt.Sprintf("incoming-%d-%d", term, index), meta: hraft.SnapshotMeta{
		Version: version, Index: index, Term: term, Configuration: members, ConfigurationIndex: membersIndex,
	}}, nil
}

// record keeps the metadata of a snapshot, whose data the store has on stable storage, and returns its id.
func (s *snapshotStore) record(m *hraft.SnapshotMeta, meta snapshotMeta) (string, error) {
	sink, err := s.files.Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, plainPeers{})
	if err != nil {
		return "", fmt.Errorf("raft: record snapshot: %w", err)
	}
	if err := json.NewEncoder(sink).Encode(meta); err != nil {
		return "", errors.Join(fmt.Errorf("raft: record snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return "", fmt.Errorf("raft: record snapshot: %w", err)
	}
	return sink.ID(), nil
}

// plainPeers writes the list of peers that snapshots of before version 1 had, as hashicorp's transport does.
type plainPeers struct{ hraft.Transport }

func (plainPeers) EncodePeer(_ hraft.ServerID, address hraft.ServerAddress) []byte {
	return []byte(address)
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
	meta, r, err := s.files.Open(id)
	if err != nil {
		return nil, nil, fmt.Errorf("raft: open snapshot %s: %w", id, err)
	}
	if err := r.Close(); err != nil {
		return nil, nil, fmt.Errorf("raft: open snapshot %s: %w", id, err)
	}
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
// A checkpoint reaches at least as far as the store did then. Where it does not reach past the snapshot's own
// index, what lies between are entries that are none of the store's, so that it is the state at that index
// too; and the log may begin right after that index, so that it must be told.
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

// install makes the snapshot that came under an id the store. It is called by the goroutine that applies.
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
	s.logs.installed.Store(&place{in.meta.Index, in.meta.Term})
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
