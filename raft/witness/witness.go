package witness

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

var (
	// ErrOlderCopy means that a directory is older than what its node has acknowledged.
	ErrOlderCopy = errors.New("raft: the data directory is older than what this node has acknowledged")
	// ErrTwoCopies means that two nodes run with copies of one directory.
	ErrTwoCopies = errors.New("raft: two nodes run with copies of one data directory")
	// ErrTwoLeaders means that two nodes were elected in one term: a member has forgotten its vote.
	ErrTwoLeaders = errors.New("raft: two leaders of one term, so that a member must have forgotten its vote")
)

// Files are small files of a node, each with a checksum.
type Files interface {
	// Read returns what a file has; nil: there is no such file.
	Read(name string) ([]byte, error)
	// Replace replaces a file durably.
	Replace(name string, body []byte) error
}

// Options of a Witness. All are required.
type Options struct {
	Files Files
	// NodeID is this node's Raft ID, and Address the one at which other members reach it.
	NodeID, Address string
	// Standing returns what the directory has now.
	Standing func() Standing
	Logger   *slog.Logger
}

// Standing is how far a node's log and term are on stable storage.
type Standing struct {
	Term uint64
	// The end of the log.
	Index, LastTerm uint64
	// Overruled is the term of the last leader that made the node drop the end of its log.
	Overruled uint64
}

// logTerm is the term of the last leader that has changed the log.
func (s Standing) logTerm() uint64 { return max(s.LastTerm, s.Overruled) }

// Witness is one node's memory of itself and of the other members. Its incarnations, and the term
// in which its log was overruled, are on stable storage before another member hears of them. What
// it remembers of others may lag on the disk: Save stores it now and then, and at once when a
// member has a new incarnation or a term a leader.
type Witness struct {
	// Set by Open, and never again.

	files    Files
	nodeID   string
	address  string
	standing func() Standing
	log      *slog.Logger
	before   map[string]Recollection // what Open has read
	lost     error                   // why it has not read the incarnations

	// saving is held while the memory of others is being stored, so that a later memory is not
	// replaced by an earlier one. It is taken before mu, which is free during the write.
	saving sync.Mutex

	// mu guards all below. It is held while own is being stored: own changes when its file has.
	mu    sync.Mutex
	own   self
	began time.Time // when Begin returned
	first uint64    // the end of the log then
	// members by Raft ID, at most maxMembers, and the last leader. dirty: they have changed since
	// Save.
	members map[string]*member
	dirty   bool
	leader  Leader
}

// Open reads what the directory has. A damaged memory is dropped: the node notices less.
func Open(opts Options) *Witness {
	w := &Witness{
		files: opts.Files, nodeID: opts.NodeID, address: opts.Address, standing: opts.Standing,
		log: opts.Logger, members: map[string]*member{},
	}
	w.own, w.lost = readSelf(w.files)
	m, err := readMemory(w.files)
	if err != nil {
		w.log.Warn("cannot read the memory of other members; starting without it", "err", err)
	}
	w.leader, w.before = m.Leader, m.Members
	for id, r := range m.Members {
		w.members[id] = &member{Recollection: r}
	}
	return w
}

// Lost returns why the incarnations cannot be read; nil: they are. Begin would begin again
// from scratch: other members would take the directory for an older copy.
func (w *Witness) Lost() error { return w.lost }

// Begin makes this start's incarnation, durably. first: the directory had none before.
func (w *Witness) Begin() (first bool, err error) {
	now := w.standing()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.own.begun(now.Term)
	if err := next.write(w.files); err != nil {
		return false, err
	}
	w.own, w.began, w.first = next, time.Now(), now.Index
	return len(next.Incarnations) == 1, nil
}

// GoAlone notes durably that a log entry is about to make this node the only member of its group.
// Only members that it gets later can notice that its directory is an older copy.
func (w *Witness) GoAlone(entry uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.own
	next.Alone = entry
	if err := next.write(w.files); err != nil {
		return err
	}
	w.own = next
	return nil
}

// Overrule notes durably that the end of the log is about to be dropped in a term.
func (w *Witness) Overrule(term uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if term <= w.own.Overruled {
		return nil
	}
	next := w.own
	next.Overruled = term
	if err := next.write(w.files); err != nil {
		return err
	}
	w.own = next
	return nil
}

// Alone returns the last entry that GoAlone noted; 0: none.
func (w *Witness) Alone() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own.Alone
}

// Overruled returns the last term that Overrule noted.
func (w *Witness) Overruled() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own.Overruled
}

// Greeting is what a node says of its directory.
type Greeting struct {
	// Incarnations, the newest first.
	Incarnations []Incarnation
	Address      string
	Standing
	// Leader is the last one that the node knows.
	Leader Leader
	// Members is what the node remembers of the others, by Raft ID.
	Members map[string]Recollection
}

// Answer is what a greeted node returns.
type Answer struct {
	// You is what it remembers of the greeting node.
	You Recollection
	// Seen is how long ago the remembered incarnation greeted it, from Address; negative: not since
	// it started.
	Seen    time.Duration
	Address string
	// Rival is another incarnation with the same Raft ID, which was refused; zero: none. It greeted
	// RivalTimes, last RivalSeen ago from RivalAddress.
	Rival        Incarnation
	RivalTimes   int
	RivalSeen    time.Duration
	RivalAddress string
	// Self is the greeting of the answering node.
	Self Greeting
}

// Greeting returns what this node says of its directory.
func (w *Witness) Greeting() Greeting {
	now := w.standing()
	w.mu.Lock()
	defer w.mu.Unlock()
	g := Greeting{
		Incarnations: w.own.Incarnations, Address: w.address, Standing: now, Leader: w.leader,
		Members: make(map[string]Recollection, len(w.members)),
	}
	for id, m := range w.members {
		g.Members[id] = m.Recollection
	}
	return g
}

// Hear answers a greeting. fresh: the greeting node has started since it was last heard. A new
// incarnation is on stable storage before Hear returns. ErrTwoCopies: the greeting came from a
// copy of this node's own directory, and this node must stop.
func (w *Witness) Hear(id string, g Greeting) (a Answer, fresh bool, err error) {
	a.Self, a.Seen = w.Greeting(), -1
	if len(g.Incarnations) == 0 {
		return a, false, nil
	}
	if id == w.nodeID {
		a.You, a.Seen, a.Address = Recollection{Incarnation: a.Self.Incarnations[0]}, 0, w.address
		if !slices.Contains(a.Self.Incarnations, g.Incarnations[0]) {
			err = twoCopies(w.address, g.Address)
		}
		return a, false, err
	}
	w.mu.Lock()
	m := w.memberLocked(id)
	if m == nil {
		w.mu.Unlock()
		return a, false, nil
	}
	a.You = m.Recollection
	if !m.seen.at.IsZero() {
		a.Seen, a.Address = time.Since(m.seen.at), m.seen.address
	}
	fresh = w.meetLocked(m, id, g, a.Self.logTerm())
	if r := m.rival; r.times > 0 && r.incarnation != g.Incarnations[0] {
		a.Rival, a.RivalTimes, a.RivalSeen, a.RivalAddress = r.incarnation, r.times, time.Since(r.at), r.address
	}
	w.mu.Unlock()
	if fresh {
		err = w.Save()
	}
	return a, fresh, err
}

// meetLocked notes a greeting. logTerm is that of this node's own log.
func (w *Witness) meetLocked(m *member, id string, g Greeting, logTerm uint64) (fresh bool) {
	now := sighting{incarnation: g.Incarnations[0], address: g.Address, at: time.Now(), times: 1}
	switch {
	case descends(g.Incarnations, m.Incarnation) && !m.lacks(g.Standing):
	case m.Incarnation == now.incarnation:
		// It has acknowledged more since it sent this.
		m.seen = now
		return false
	case g.logTerm() > logTerm:
		// It is too late: a later leader has given it other entries.
		w.log.Error("a member runs with an older copy of its data directory",
			"member", id, "address", g.Address, "remedy", tooLate)
	default:
		if was := m.rival; was.incarnation == now.incarnation {
			if now.times = was.times; now.at.Sub(was.at) < apart {
				now.at = was.at
			} else {
				now.times++
			}
		}
		m.rival = now
		return false
	}
	if m.rival.incarnation == now.incarnation {
		m.rival = sighting{}
	}
	m.seen = now
	fresh = m.Incarnation != now.incarnation
	m.Incarnation = now.incarnation
	// Of the end of a log, the greeted node knows only the entry's own term.
	w.dirty = m.note(g.Term, g.LastTerm, g.Index) || fresh || w.dirty
	return fresh
}
