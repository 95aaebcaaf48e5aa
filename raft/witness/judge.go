package witness

import (
	"fmt"
	"slices"
	"time"
)

// rivalFor is how long a greeting counts as a sign that a directory is in use. It is several
// intervals between greetings.
const rivalFor = 10 * time.Second

// advice is the remedy for an older copy. The copy is kept: it may be of use to whoever finds out
// what happened.
const advice = "a node never goes on from an older copy; replace it: remove the member (runlog cluster remove), " +
	"move its data directory away, and start it with an empty one"

// Judge compares an answer with what this node has, and returns an error if this node must stop:
// ErrOlderCopy or ErrTwoCopies. sent is when the greeting was sent, and by names the other member.
//
// If this node's log has since been changed by a later leader than any that the other member knows,
// an older copy is not stopped: it may be one of the majority that goes on, and the other member
// the only one with what was lost.
func (w *Witness) Judge(a Answer, sent time.Time, by string) error {
	now := w.standing() // after the answer, see the package's comment
	w.mu.Lock()
	own, uptime := w.own, sent.Sub(w.began)
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
	if !descends(own.Incarnations, you.Incarnation) {
		switch {
		case a.Seen >= 0 && a.Seen < uptime, a.Seen >= 0 && a.Seen < rivalFor && a.Address != w.address:
			return twoCopies(w.address, a.Address)
		case now.logTerm() > a.Self.logTerm():
			w.log.Error("this node runs with an older copy of its data directory; acknowledged events may be lost",
				"noticed-by", by, "remedy", "empty no data directory; see docs/operations.md, Older copies")
		default:
			return fmt.Errorf("%w: %s has met start %d of it as %s, which this directory has never had; %s",
				ErrOlderCopy, by, you.Incarnation.Number, you.Incarnation.ID, advice)
		}
	}
	switch {
	case now.Index < you.Index && now.logTerm() <= you.LogTerm:
		return fmt.Errorf("%w: %s remembers its log up to entry %d in term %d, and the log ends at %d, changed last in term %d; %s",
			ErrOlderCopy, by, you.Index, you.LogTerm, now.Index, now.logTerm(), advice)
	case now.Term < you.Term:
		return fmt.Errorf("%w: %s remembers it in term %d, and it has stored term %d; %s", ErrOlderCopy, by, you.Term, now.Term, advice)
	}
	return nil
}

func twoCopies(mine, other string) error {
	return fmt.Errorf("%w: this one at %s, and another at %s; both stop. Start only the one that ran first, and move the other directory away; "+
		"where that is not known, replace the node: remove the member (runlog cluster remove), and start it with an empty directory",
		ErrTwoCopies, mine, other)
}
