package mutants

import "fmt"

// Edits that are no bugs: they delay a process, or a request, where a real one can be delayed too.
var (
	// heldUp delays Raft's loop after it has read its term, before it appends entries.
	heldUp = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tterm := r.getCurrentTerm()\n\tlastIndex := r.getLastIndex()\n\n\tn := len(applyLogs)",
		New: "\tif now.Nanosecond()/1e6%8 == 0 {\n\t\ttime.Sleep(time.Duration(now.Nanosecond()) * 5)\n\t}\n" +
			"\tterm := r.getCurrentTerm()\n\tlastIndex := r.getLastIndex()\n\n\tn := len(applyLogs)",
	}
	// lateLease delays a leader before it checks its lease.
	lateLease = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\t\tcase <-lease:\n",
		New: "\t\tcase <-lease:\n\t\t\ttime.Sleep(time.Duration(time.Now().Nanosecond()) * 3)\n",
	}
	// lateEntry delays a new leader before its first entry.
	lateEntry = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tnoop := &logFuture{log: Log{Type: LogNoop}}\n\tr.dispatchLogs",
		New: "\ttime.Sleep(1500 * time.Millisecond)\n\tnoop := &logFuture{log: Log{Type: LogNoop}}\n\tr.dispatchLogs",
	}
	// lateHeartbeat delays a new leader before its first heartbeat.
	lateHeartbeat = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\tr.startStopReplication()\n\n\t// Dispatch",
		New: "\ttime.Sleep(500 * time.Millisecond)\n\tr.startStopReplication()\n\n\t// Dispatch",
	}
	// lateVotes delays the requests of candidates, so that more of them meet in one term.
	lateVotes = Edit{
		Module: hashicorpRaft, File: "raft.go",
		Old: "\t\t\terr := r.trans.RequestVote(",
		New: "\t\t\ttime.Sleep(time.Duration(time.Now().Nanosecond()) / 2)\n\t\t\terr := r.trans.RequestVote(",
	}
)

// lateRetry makes the wait before a retry towards an unreachable follower constant, in tenths of a
// second.
func lateRetry(tenths int) Edit {
	const before, after = "time.After(", "):\n\t\tcase <-r.shutdownCh:\n\t\t}\n\t}\n\n\ts.peerLock.RLock()\n\tpeer = s.peer"
	return Edit{
		Module: hashicorpRaft, File: "replication.go",
		Old: before + "backoff(failureWait, s.failures, maxFailureScale)" + after, New: before + fmt.Sprint(tenths, "*time.Second/10") + after,
	}
}
