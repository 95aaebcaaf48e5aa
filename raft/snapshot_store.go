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

// snapshotStore is hashicorp/raft's SnapshotStore. On disk, a snapshot is only a record in the
// small file "snapshots": its data is the store (D5). hashicorp/raft takes three things for a
// snapshot:
//
//   - a local snapshot, by which the log may be dropped: Persist records its metadata;
//   - the snapshot for a far-behind follower: Open makes a checkpoint of the current store, and
//     returns its index;
//   - the snapshot from a leader: the sink passes it to the store, and Restore installs it.
//
// docs/adr/0006-snapshots.md explains why the indexes fit.
//
// A local snapshot and a leader's may be under way at the same time, and hashicorp/raft continues
// from the one that ends last, which must not be the older one. So a local one is not recorded
// while a leader's is incoming, nor when a later one was recorded since it began
// (snapshotSink.record).
type snapshotStore struct {
	// Set by Node.open, and never again.

	disk   vfs.FS
	dir    string
	store  *storage.Store
	logs   *wal.Log // gets the snapshot after which it begins
	stable *wal.Stable
	fail   func(error) // stops the node
	// conflicts returns the error of a node whose log has an entry that its leader does not have.
	conflicts func(own wal.EntryID) error

	// streams counts the checkpoints that are being sent, by hashicorp/raft or outside of it
	// (KeepLog). Any goroutine counts; housekeep reads it before it truncates the log.
	streams atomic.Int64

	mu struct {
		sync.Mutex
		// records are the content of the file, the newest first. They are replaced once the file
		// is, with the lock held over the write: newest may wait for the disk.
		records []snapshotRecord
		// incoming is the snapshot from a leader, from its first byte until Restore has ended.
		// There is one at a time.
		incoming *snapshotSink
		// announced is the last entry of the snapshot that a leader has announced last. Create
		// takes the nonce from it, if it is of the same snapshot.
		announced wal.EntryID
	}
}

var _ hraft.SnapshotStore = (*snapshotStore)(nil)

// errInstalling refuses the record of a local snapshot during the transfer of a leader's:
// hashicorp/raft would continue from the one that ends last.
var errInstalling = errors.New("raft: a snapshot is being installed")

// errOvertaken refuses the record of a local snapshot during whose flush a leader's was installed:
// hashicorp/raft would continue from the local one.
var errOvertaken = errors.New("raft: a later snapshot was installed meanwhile")

// errLate refuses a snapshot after which the log already begins. The leader has sent it twice, and
// the network has kept it. hashicorp/raft would drop the log, with entries that this node has
// acknowledged since.
var errLate = errors.New("raft: the log already begins after the snapshot")

// snapshotRecord is the stored metadata of a snapshot.
type snapshotRecord struct {
	// Meta is what hashicorp/raft knows of the snapshot.
	Meta hraft.SnapshotMeta `json:"meta"`
	snapshotMeta
}

// snapshotMeta is our part of a snapshot's metadata.
type snapshotMeta struct {
	// Applied is the index that the store held on stable storage when the snapshot was recorded.
	Applied uint64 `json:"applied"`
	// Installed: the snapshot came from a leader, so an empty log may begin after it.
	Installed bool `json:"installed,omitempty"`
	// Nonce of the last entry; 0: not known.
	Nonce uint64 `json:"nonce,omitempty"`
}

const (
	snapshotsFile = "snapshots"
	// snapshotsKept leaves room for a snapshot that hashicorp/raft has listed and opens after a
	// newer one was recorded.
	snapshotsKept = 2
)

// drop is how far the newest snapshot allowed truncation of the log; zero without a snapshot.
type drop struct {
	wal.EntryID
	meta snapshotMeta
}

// load reads the records.
func (s *snapshotStore) load() error {
	path := s.disk.PathJoin(s.dir, snapshotsFile)
	body, err := wal.ReadSummed(s.disk, path)
	if err == nil && body != nil {
		if err = json.Unmarshal(body, &s.mu.records); err != nil {
			err = storage.Damage(fmt.Errorf("%s is damaged: %w", path, err))
		}
	}
	if err != nil {
		return fmt.Errorf("raft: read snapshot records: %w", err)
	}
	return nil
}

// newest returns the newest snapshot's position.
func (s *snapshotStore) newest() drop {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.records) == 0 {
		return drop{}
	}
	r := &s.mu.records[0]
	return drop{EntryID: wal.EntryID{Index: r.Meta.Index, Term: r.Meta.Term, Nonce: r.Nonce}, meta: r.snapshotMeta}
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

// announce implements transport.Notes.Announced. Create follows, unless Raft refuses the snapshot.
func (s *snapshotStore) announce(index, term uint64, nonce []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.announced = wal.EntryID{Index: index, Term: term, Nonce: wal.ParseNonce(nonce)}
}

// Create begins a snapshot, a local or a received one: the use of the sink decides.
//
// A deposed leader may still be sending. Entries that it applied since can be of a later term than
// the one it sends in. Such a snapshot would end this node's log in a term that the node has never
// been in. The leader of that term will send another.
func (s *snapshotStore) Create(version hraft.SnapshotVersion, index, term uint64, members hraft.Configuration,
	membersIndex uint64, _ hraft.Transport) (hraft.SnapshotSink, error) {
	if now := s.stable.Term(); term > now {
		return nil, fmt.Errorf("raft: snapshot of term %d received in term %d: its sender no longer leads", term, now)
	}
	last := wal.EntryID{Index: index, Term: term}
	s.mu.Lock()
	if a := s.mu.announced; a.Index == index && a.Term == term {
		last = a
	}
	s.mu.Unlock()
	return &snapshotSink{s: s, id: fmt.Sprintf("incoming-%d-%d", term, index), last: last, meta: hraft.SnapshotMeta{
		Version: version, Index: index, Term: term, Configuration: members, ConfigurationIndex: membersIndex,
	}}, nil
}

// record stores the metadata of a snapshot whose data the store has on stable storage, and returns
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

// Open opens the received snapshot for Restore, or a checkpoint of the current store for a
// follower.
func (s *snapshotStore) Open(id string) (*hraft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	in := s.mu.incoming
	s.mu.Unlock()
	if in != nil && in.id == id {
		// The store already has the bytes. Restore reads only their id.
		return &in.meta, io.NopCloser(strings.NewReader(id)), nil
	}
	list, _ := s.List() // never fails
	i := slices.IndexFunc(list, func(m *hraft.SnapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("raft: snapshot %s no longer exists", id)
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

// KeepLog keeps the log for a node that receives the store's state outside of Raft: from a call
// with true to a call with false, and a while longer (D5).
func (n *Node) KeepLog(on bool) {
	if on {
		n.snapshots.streams.Add(1)
	} else {
		n.snapshots.streams.Add(-1)
	}
}

// describe turns the metadata of the newest local snapshot into those of a checkpoint.
//
// A checkpoint is at least as new as the snapshot's record. If it does not reach past the
// snapshot's own index, the entries between do not concern the store, so it is the state at that
// index too. The follower must learn that index, because the log may begin right after it.
func describe(meta *hraft.SnapshotMeta, c *storage.Checkpoint) error {
	meta.Size = c.Size()
	if c.Applied.Index <= meta.Index {
		return nil
	}
	if c.Membership.Index == 0 {
		return errors.New("raft: the store has no membership; change the membership once")
	}
	meta.Index, meta.Term, meta.Peers = c.Applied.Index, c.Applied.Term, nil
	meta.ConfigurationIndex = c.Membership.Index
	var err error
	meta.Configuration, err = decodeConfiguration(c.Membership.Index, c.Membership.Data)
	return err
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

// install makes the received snapshot with this id the store. The applying goroutine calls it.
func (s *snapshotStore) install(id string) error {
	s.mu.Lock()
	in := s.mu.incoming
	s.mu.Unlock()
	if in == nil || in.id != id {
		return fmt.Errorf("raft: no snapshot %q received", id)
	}
	defer s.end(in)
	first, err := s.logs.FirstIndex()
	if err == nil && first > in.meta.Index {
		err = errLate
	}
	if err == nil {
		err = s.compare(in.last)
	}
	if err == nil {
		err = in.received.Install()
	}
	if err != nil {
		if refused(err) || errors.Is(err, storage.ErrDiverged) || errors.Is(err, ErrDiverged) {
			in.received.Discard()
		}
		return err
	}
	// If the node crashes before this is on stable storage, finishInstall repairs it.
	meta := snapshotMeta{Applied: in.received.Applied.Index, Installed: true, Nonce: in.last.Nonce}
	if _, err := s.record(&in.meta, meta); err != nil {
		return err
	}
	s.logs.BeginAfter(in.last)
	return nil
}

// compare compares the last entry of a snapshot with the log.
func (s *snapshotStore) compare(last wal.EntryID) error {
	own, err := s.logs.Entry(last.Index)
	if err == nil && own.Conflicts(last) {
		err = s.conflicts(own)
	}
	return err
}

// refused reports whether a snapshot was not installed because the node is past it, and changed
// nothing.
func refused(err error) bool { return errors.Is(err, storage.ErrOlder) || errors.Is(err, errLate) }

// end forgets a received snapshot.
func (s *snapshotStore) end(k *snapshotSink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.incoming == k {
		s.mu.incoming = nil
	}
}

// close discards a received snapshot that was not installed. hashicorp/raft has stopped.
func (s *snapshotStore) close() {
	if in := s.mu.incoming; in != nil && in.received != nil {
		in.received.Discard()
	}
}
