package witness

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	memoryFile = "witness"
	// maxMembers is far more than a group has.
	maxMembers = 64
)

// Recollection is what one member remembers of another.
type Recollection struct {
	// Incarnation that it has met last; zero: none.
	Incarnation Incarnation `json:"incarnation"`
	// Term is the highest term that the other one has stored.
	Term uint64 `json:"term,omitempty"`
	// Index is the end of its log as it has acknowledged it, and LogTerm the term in which it did:
	// only a leader of a later term can have made it drop the entry.
	Index   uint64 `json:"index,omitempty"`
	LogTerm uint64 `json:"logTerm,omitempty"`
}

// Leader is a leadership: Raft elects at most one node in a term.
type Leader struct {
	Term uint64 `json:"term"`
	ID   string `json:"id"`
}

// memory is the content of the file "witness", in JSON with a checksum.
type memory struct {
	// Leader is the last one that this node has followed or been.
	Leader  Leader                  `json:"leader"`
	Members map[string]Recollection `json:"members"`
}

// member is what is remembered of one other member.
type member struct {
	Recollection
	seen sighting // of the incarnation
	// rival is a directory with the same Raft ID that does not descend from the incarnation.
	rival sighting
}

// sighting is an incarnation that has greeted this node since its start: how often, and when last.
// Greetings that arrive together count once.
type sighting struct {
	incarnation Incarnation
	address     string
	at          time.Time
	times       int
}

// note raises what is remembered, and reports whether it has changed.
func (m *member) note(term, logTerm, index uint64) bool {
	before := m.Recollection
	m.Term = max(m.Term, term)
	if index > 0 && (logTerm > m.LogTerm || logTerm == m.LogTerm && index > m.Index) {
		m.LogTerm, m.Index = logTerm, index
	}
	return m.Recollection != before
}

// Acknowledged notes that a member has said in a term that its log reaches an index; 0: it has
// stored the term only. It compares numbers, and writes nothing.
func (w *Witness) Acknowledged(id string, term, index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.memberLocked(id); m != nil {
		w.dirty = m.note(term, term, index) || w.dirty
	}
}

// memberLocked returns the memory of a member; nil: there is no room for another.
func (w *Witness) memberLocked(id string) *member {
	m := w.members[id]
	if m == nil && id != w.nodeID && len(w.members) < maxMembers {
		m = &member{}
		w.members[id] = m
	}
	return m
}

// Led notes the leader of a term, durably if the term is new. ErrTwoLeaders: another node did.
func (w *Witness) Led(term uint64, id string) error {
	w.mu.Lock()
	known := w.leader
	if term > known.Term {
		w.leader, w.dirty = Leader{Term: term, ID: id}, true
	}
	w.mu.Unlock()
	switch {
	case term > known.Term:
		return w.Save()
	case term == known.Term && id != known.ID:
		return fmt.Errorf("%w: %s and %s in term %d", ErrTwoLeaders, known.ID, id, term)
	}
	return nil
}

// ForgetLeader forgets the last leader, durably: the node has lost its term, and may lead in the
// one that it had.
func (w *Witness) ForgetLeader() error {
	w.mu.Lock()
	w.dirty = w.dirty || w.leader.Term > 0
	w.leader = Leader{}
	w.mu.Unlock()
	return w.Save()
}

// Common returns an index up to which another leader of a term has the same log as this node; 0: it
// is not known. others are the Raft IDs of the other voters.
//
// A majority of them has elected the leader, which has what each of that majority had. Common takes
// the least that is remembered of them from before this start. What was remembered in the term or
// later may be of the other leader's history, and says nothing. If so many are left out that they
// could be the majority, nothing is known.
func (w *Witness) Common(others []string, term uint64) uint64 {
	common, unknown := uint64(math.MaxUint64), 0
	for _, id := range others {
		r := w.before[id]
		if r.LogTerm >= term {
			unknown++
			continue
		}
		common = min(common, r.Index)
	}
	if majority := (len(others)+1)/2 + 1; unknown >= majority || unknown == len(others) {
		return 0
	}
	return common
}

// Keep forgets those that are no members any more.
func (w *Witness) Keep(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.members {
		if !slices.Contains(ids, id) {
			delete(w.members, id)
			w.dirty = true
		}
	}
}

// Save stores the memory, if it has changed.
func (w *Witness) Save() error {
	w.saving.Lock()
	defer w.saving.Unlock()
	w.mu.Lock()
	if !w.dirty {
		w.mu.Unlock()
		return nil
	}
	all := memory{Leader: w.leader, Members: make(map[string]Recollection, len(w.members))}
	for id, m := range w.members {
		all.Members[id] = m.Recollection
	}
	w.dirty = false
	w.mu.Unlock()
	body, err := json.Marshal(all)
	if err == nil {
		err = w.files.Replace(memoryFile, body)
	}
	if err != nil {
		return fmt.Errorf("raft: write the memory of other members: %w", err)
	}
	return nil
}

func readMemory(files Files) (m memory, err error) {
	body, err := files.Read(memoryFile)
	if err == nil && body != nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		return memory{}, fmt.Errorf("raft: read %s: %w", memoryFile, err)
	}
	return m, nil
}
