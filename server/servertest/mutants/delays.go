package mutants

import "fmt"

// Edits that are no bugs: they make time pass where a process, or what it sends, may be held up
// anyway.
var (
	// heldUp is Raft's loop where it is about to take entries, and has just looked in which term it
	// is.
	heldUp = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tterm := r.getCurrentTerm()\n\tlastIndex := r.getLastIndex()\n\n\tn := len(applyLogs)",
		New: "\tif now.Nanosecond()/1e6%8 == 0 {\n\t\ttime.Sleep(time.Duration(now.Nanosecond()) * 5)\n\t}\n" +
			"\tterm := r.getCurrentTerm()\n\tlastIndex := r.getLastIndex()\n\n\tn := len(applyLogs)",
	}
	// lateLease is a leader's loop where it is to find out whether it still leads.
	lateLease = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\t\tcase <-lease:\n",
		New: "\t\tcase <-lease:\n\t\t\ttime.Sleep(time.Duration(time.Now().Nanosecond()) * 3)\n",
	}
	// lateEntry is a new leader before its first entry.
	lateEntry = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tnoop := &logFuture{log: Log{Type: LogNoop}}\n\tr.dispatchLogs",
		New: "\ttime.Sleep(1500 * time.Millisecond)\n\tnoop := &logFuture{log: Log{Type: LogNoop}}\n\tr.dispatchLogs",
	}
	// lateHeartbeat is a new leader that nobody has heard of yet.
	lateHeartbeat = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tr.startStopReplication()\n\n\t// Dispatch",
		New: "\ttime.Sleep(500 * time.Millisecond)\n\tr.startStopReplication()\n\n\t// Dispatch",
	}
	// lateVotes are requests of candidates, so that there are more of them in one term.
	lateVotes = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\t\t\terr := r.trans.RequestVote(",
		New: "\t\t\ttime.Sleep(time.Duration(time.Now().Nanosecond()) / 2)\n\t\t\terr := r.trans.RequestVote(",
	}
)

// lateRetry has who could not be reached tried again after tenths of a second.
func lateRetry(tenths int) Edit {
	const before, after = "time.After(", "):\n\t\tcase <-r.shutdownCh:\n\t\t}\n\t}\n\n\ts.peerLock.RLock()\n\tpeer = s.peer"
	return Edit{
		Module: hashicorpRaft, File: "replication.go",
		Old: before + "backoff(failureWait, s.failures, maxFailureScale)" + after, New: before + fmt.Sprint(tenths, "*time.Second/10") + after,
	}
}
