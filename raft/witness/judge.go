package witness

import (
	"fmt"
	"slices"
	"time"
)

// rivalFor is how long a greeting counts as a sign that a directory is in use. It is several
// intervals between greetings.
const rivalFor = 10 * time.Second

// apart is the least time between two greetings of one node that count as two. It is less than the
// interval between greetings. Messages that the network has kept arrive together.
const apart = time.Second

// advice is the remedy for an older copy. The copy is kept, so that its history can be examined.
const advice = "a node never goes on from an older copy; keep this directory, and replace the node: " +
	"remove the member (runlog cluster remove), and start it with --join and another, new --data-dir"

// ledAdvice adds what an older copy has taken as the leader, from an entry on.
const ledAdvice = "; it has led since its start: write the events that it has taken to a file " +
	"with \"runlog cluster salvage --from-entry %d\""

// tooLate is the remedy for an older copy that has got other entries since.
const tooLate = "acknowledged events may be lost; keep every data directory; see docs/operations.md, Older copies"

// Judge compares an answer with what this node has, and returns an error if this node must stop:
// ErrOlderCopy or ErrTwoCopies. sent is when the greeting was sent, and by names the other member.
//
// A node that has followed another leader since continues, where only the incarnation says that it
// is an older copy, or where the other member knows another leader of the same term: the node may
// be one of the majority, and the other member the only one with what was lost.
func (w *Witness) Judge(a Answer, sent time.Time, by string) error {
	return w.judge(a, sent, by, false)
}

// judge is Judge. sole: no other member needs this node.
func (w *Witness) judge(a Answer, sent time.Time, by string, sole bool) error {
	now := w.standing() // after the answer, see the package's comment
	w.mu.Lock()
	own, uptime, leader, began := w.own, sent.Sub(w.began), w.leader, w.first
	now.Overruled = own.Overruled
	w.mu.Unlock()
	if r := a.Rival; r.Number > 0 && a.RivalSeen < min(rivalFor, uptime) {
		// A greeting of an ancestor may have been late.
		late := slices.Contains(own.Incarnations, r) && (a.RivalTimes < 2 || a.RivalAddress == w.address)
		if !late {
			return twoCopies(w.address, a.RivalAddress)
		}
	}
	you := a.You
	fault := you.fault(now, own.Incarnations)
	switch {
	case fault == "":
		return nil
	case a.Seen >= 0 && a.Seen < uptime && you.Incarnation != own.Incarnations[0],
		a.Seen >= 0 && a.Seen < rivalFor && a.Address != w.address:
		return twoCopies(w.address, a.Address)
	case !sole && now.logTerm() > a.Self.logTerm() && !you.lacks(now),
		!sole && rivals(leader, a.Self.Leader) && now.logTerm() == leader.Term:
		w.log.Error("this node runs with an older copy of its data directory",
			"noticed-by", by, "what", fault, "remedy", tooLate)
		return nil
	}
	remedy := advice
	if leader.ID == w.nodeID && leader.Term == now.Term && now.Index > began {
		remedy += fmt.Sprintf(ledAdvice, began+1)
	}
	return fmt.Errorf("%w: %s remembers %s; %s", ErrOlderCopy, by, fault, remedy)
}

// JudgeBy is Judge with what a greeting node remembers of this one. A node that cannot reach the
// others learns it that way, and a node that does not know them: its directory may be from before
// they became members. members are those that this node knows, with itself; none: it has not
// started. If this node has gone on alone, the memory of others does not count.
func (w *Witness) JudgeBy(g Greeting, id string, members []string) error {
	you, met := g.Members[w.nodeID]
	stranger := !slices.Contains(members, id)
	if !met || stranger && w.Alone() > 0 {
		return nil
	}
	return w.judge(Answer{You: you, Seen: -1, Self: g}, time.Time{}, "the node "+id, stranger && len(members) == 1)
}

// fault says what a directory lacks; empty: nothing.
func (r *Recollection) fault(now Standing, incarnations []Incarnation) string {
	switch {
	case r.beyond(now):
		return fmt.Sprintf("its log up to entry %d in term %d, and the log ends at %d, changed last in term %d",
			r.Index, r.LogTerm, now.Index, now.logTerm())
	case now.Term < r.Term:
		return fmt.Sprintf("it in term %d, and it has stored term %d", r.Term, now.Term)
	case !descends(incarnations, r.Incarnation):
		return fmt.Sprintf("start %d of it as %s, which this directory has never had", r.Incarnation.Number, r.Incarnation.ID)
	}
	return ""
}

// rivals reports whether two leaders of one term are known. The nodes that follow one and those
// that follow the other have different logs.
func rivals(a, b Leader) bool { return a.Term > 0 && a.Term == b.Term && a.ID != b.ID }

// beyond reports whether a log lacks entries that its node has acknowledged.
func (r *Recollection) beyond(s Standing) bool {
	return s.Index < r.Index && s.logTerm() <= r.LogTerm
}

// lacks reports whether a directory lacks something that its node has acknowledged.
func (r *Recollection) lacks(s Standing) bool { return r.beyond(s) || s.Term < r.Term }

func twoCopies(mine, other string) error {
	return fmt.Errorf("%w: this one at %s, and another at %s; both stop. Start only the one that ran first, and move the other directory away; "+
		"if you do not know which, keep both, and replace the node: remove the member (runlog cluster remove), and start it with --join and another, new --data-dir",
		ErrTwoCopies, mine, other)
}
