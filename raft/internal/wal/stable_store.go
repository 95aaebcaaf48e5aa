package wal

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// Keys that hashicorp/raft uses.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// Stable keeps a node's term and vote in the small file "vote":
//
//	format version, 1       1
//	current term            8
//	term of the last vote   8
//	candidate of that vote  the rest
//
// Integers are big endian. hashicorp/raft writes the term of a vote and the candidate separately.
// If they were stored apart, a crash in between would leave the new term with the last term's
// candidate: that candidate would then get this node's vote (D3). Here a new voted term clears the
// candidate in the same write.
type Stable struct {
	fs   vfs.FS
	dir  string
	fail func(error)

	// mu guards state, and is held while the file is replaced: state changes when the file has.
	mu    sync.Mutex
	state vote
	// term is a copy of state.term, for callers that must not wait for the disk. It is stored with
	// mu, once the file has the term.
	term atomic.Uint64
}

type vote struct {
	term      uint64
	votedTerm uint64
	candidate []byte
}

var _ hraft.StableStore = (*Stable)(nil)

const (
	voteFormat = 1
	voteHeader = 17

	// VoteFile is the name of Stable's file in its directory.
	VoteFile = "vote"
)

// OpenStable reads the file in dir. Without a file, it starts without term and vote. So does the
// store that it returns with an error about a damaged file.
//
// A killed process may have replaced the file without a sync of the directory. The node confirms a
// vote that it finds, without a write, so OpenStable makes it durable first.
func OpenStable(fileSystem vfs.FS, dir string, fail func(error)) (*Stable, error) {
	s := &Stable{fs: fileSystem, dir: dir, fail: fail}
	path := s.fs.PathJoin(dir, VoteFile)
	if err := storage.SyncDir(s.fs, dir); err != nil {
		return nil, fmt.Errorf("raft: term and vote: %w", err)
	}
	body, err := ReadSummed(s.fs, path)
	if err != nil {
		return s, fmt.Errorf("raft: term and vote: %w", err)
	}
	if body == nil {
		return s, nil
	}
	if s.state, err = parseVote(body); err != nil {
		return s, storage.Damage(fmt.Errorf("raft: %s is damaged: %w", path, err))
	}
	s.term.Store(s.state.term)
	return s, nil
}

// Term returns the current term, without waiting for the disk.
func (s *Stable) Term() uint64 { return s.term.Load() }

// SetTerm stores the current term.
func (s *Stable) SetTerm(term uint64) error { return s.SetUint64([]byte(keyCurrentTerm), term) }

// VotedTerm returns the term of the last vote; 0 without one.
func (s *Stable) VotedTerm() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.votedTerm
}

func parseVote(body []byte) (vote, error) {
	if body[0] != voteFormat {
		return vote{}, fmt.Errorf("has format version %d, this build knows %d", body[0], voteFormat)
	}
	if len(body) < voteHeader {
		return vote{}, fmt.Errorf("has %d bytes", len(body)+sumSize)
	}
	return vote{
		term:      binary.BigEndian.Uint64(body[1:]),
		votedTerm: binary.BigEndian.Uint64(body[9:]),
		candidate: body[voteHeader:],
	}, nil
}

func (v *vote) bytes() []byte {
	b := []byte{voteFormat}
	b = binary.BigEndian.AppendUint64(b, v.term)
	b = binary.BigEndian.AppendUint64(b, v.votedTerm)
	return append(b, v.candidate...)
}

// change replaces the file durably. A node that cannot store its vote must stop: it could vote
// again in the same term.
func (s *Stable) change(edit func(*vote)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state
	edit(&next)
	if err := ReplaceSummed(s.fs, s.dir, VoteFile, next.bytes()); err != nil {
		err = fmt.Errorf("raft: write term and vote: %w", err)
		s.fail(err)
		return err
	}
	s.state = next
	s.term.Store(next.term)
	return nil
}

// Set stores the candidate of the last vote.
func (s *Stable) Set(key, value []byte) error {
	if string(key) != keyLastVoteCand {
		return unknownKey(key)
	}
	candidate := append([]byte(nil), value...)
	return s.change(func(v *vote) { v.candidate = candidate })
}

// Get returns the candidate of the last vote; nil if there is none in that term.
func (s *Stable) Get(key []byte) ([]byte, error) {
	if string(key) != keyLastVoteCand {
		return nil, unknownKey(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.state.candidate) == 0 {
		return nil, nil
	}
	return append([]byte(nil), s.state.candidate...), nil
}

// SetUint64 stores the current term, or the term of the last vote; a new voted term clears the
// candidate.
func (s *Stable) SetUint64(key []byte, value uint64) error {
	switch string(key) {
	case keyCurrentTerm:
		return s.change(func(v *vote) { v.term = value })
	case keyLastVoteTerm:
		return s.change(func(v *vote) {
			if v.votedTerm != value {
				v.votedTerm, v.candidate = value, nil
			}
		})
	default:
		return unknownKey(key)
	}
}

// GetUint64 returns the current term or the term of the last vote; 0 without one.
func (s *Stable) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(key) {
	case keyCurrentTerm:
		return s.state.term, nil
	case keyLastVoteTerm:
		return s.state.votedTerm, nil
	default:
		return 0, unknownKey(key)
	}
}

func unknownKey(key []byte) error { return fmt.Errorf("raft: term and vote: unknown key %q", key) }
