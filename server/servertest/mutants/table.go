package mutants

import (
	"slices"
	"time"
)

// All returns the table.
func All() []Mutant {
	return slices.Concat(disks(), consensus(), machine(), reads(), proofs(), requests(), access(), clientSide(), kept(), cached(), queues(), subscriptions(), deliveries(), leases())
}

// disks are bugs about what is on stable storage.
func disks() []Mutant {
	return []Mutant{{
		Name: "no-fsync", Breaks: "APP-2, D2", What: "what is written to the log is not synced",
		Edits: []Edit{{
			File: "raft/internal/wal/wal_files.go",
			Old:  "\tif err := datasync(f.File); err != nil {\n\t\treturn err\n\t}\n\tif f.named {",
			New:  "\tif f.named {",
		}},
	}, {
		Name: "no-dir-sync", Breaks: "APP-2, D2", What: "directories are not synced, so that a loss of power may take the names of files",
		Edits: []Edit{{
			File: "storage/internal/files/files.go",
			Old:  "errors.Join(dir.Sync(), dir.Close())",
			New:  "dir.Close()",
		}},
	}, {
		Name: "vote-not-synced", Breaks: "D3", What: "small files, such as that of term and vote, are not synced",
		Edits: []Edit{{
			File: "storage/internal/files/files.go",
			Old:  "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n",
			New:  "",
		}},
	}, {
		Name: "tail-not-written-again", Breaks: "APP-2, D3", What: "after a failed sync, what memory still shows of the log counts as written",
		Edits: []Edit{{
			File: "raft/internal/wal/rotation.go",
			Old:  "err = writeAgain(f)",
			New:  "err = nil",
		}},
		Faults: []string{"sync-error"}, Every: time.Second,
	}, {
		Name: "tail-not-synced", Breaks: "APP-2, D3", What: "the log's unsynced end of a killed process counts as written at the next start",
		Edits: []Edit{{
			File: "raft/internal/wal/rotation.go",
			Old:  "\t\terr = writeAgain(f)\n\t\tif err == nil {\n\t\t\terr = f.Sync()\n\t\t}\n",
			New:  "",
		}},
		Faults: []string{"crash-point"}, Every: 700 * time.Millisecond,
	}, {
		Name: "truncate-before-flush", Breaks: "D2", What: "the log drops entries that the store has not flushed",
		Edits: []Edit{{
			File: "raft/state_machine.go",
			Old:  "err := s.store.MakeDurable(s.meta.Applied)",
			New:  "var err error",
		}},
	}, {
		Name: "log-error-ignored", Breaks: "D3, D10", What: "a failed write to the log counts as a success",
		Edits: []Edit{{
			File: "raft/internal/wal/log.go",
			Old:  "logs[len(logs)-1].Index, err)\n\t\ts.opts.Fail(err)\n\t\treturn err\n",
			New:  "logs[len(logs)-1].Index, err)\n\t\treturn nil\n",
		}},
	}}
}

// consensus are bugs about the leadership and about what is committed.
func consensus() []Mutant {
	return []Mutant{{
		Name: "heartbeat-fast-path", Breaks: "D4a, I9",
		What: "heartbeats are answered outside the main loop, which may be delayed after it has read its term",
		Edits: []Edit{heldUp, {
			File: "raft/internal/transport/transport.go",
			Old:  "func (Transport) SetHeartbeatHandler(func(hraft.RPC)) {}",
			New:  "func (t Transport) SetHeartbeatHandler(f func(hraft.RPC)) { t.NetworkTransport.SetHeartbeatHandler(f) }",
		}},
		Control: []Edit{heldUp},
		Faults:  []string{"split", "one-way", "partial"},
	}, {
		Name: "vote-not-kept", Breaks: "D3", What: "a node votes for several candidates in one term",
		Edits: []Edit{{
			File: "raft/internal/wal/stable_store.go",
			Old:  "\treturn s.change(func(v *vote) { v.candidate = candidate })",
			New:  "\t_ = candidate\n\treturn nil",
		}, lateVotes, lateHeartbeat},
		Control: []Edit{lateVotes, lateHeartbeat},
		Faults:  []string{"partial", "kill", "restart"}, Every: 500 * time.Millisecond,
	}, {
		Name: "sends-after-leading", Breaks: "D3", What: "a deposed leader sends entries of a later leader in its own term",
		Edits: []Edit{{
			File: "raft/internal/transport/transport.go",
			Old:  "resp *hraft.AppendEntriesResponse) error {\n\tif t.Term() != req.Term {",
			New:  "resp *hraft.AppendEntriesResponse) error {\n\tif false {",
		}, lateRetry(5)},
		Control: []Edit{lateRetry(5)},
		Faults:  []string{"deposed"}, Every: time.Second,
	}, {
		Name: "commits-what-was-not-sent", Breaks: "APP-2, I9", What: "a leader sends a commit index beyond what it sent, and the follower applies its own entries there",
		Edits: []Edit{{
			File: "raft/internal/transport/transport.go",
			Old:  "min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))",
			New:  "req.LeaderCommitIndex",
		}, lateRetry(20), lateEntry},
		Control: []Edit{lateRetry(20), lateEntry},
		Faults:  []string{"stale-tail"}, Every: time.Second,
	}, {
		Name: "older-copy-accepted", Breaks: "APP-2, D3", What: "a node goes on although another member remembers more than its data directory has",
		Edits:  []Edit{{File: "raft/witness/judge.go", Old: "\tcase fault == \"\":\n", New: "\tcase true:\n"}},
		Faults: []string{"older-copy"}, Every: time.Second,
	}, {
		Name: "stamps-far-ahead", Breaks: "APP-5", What: "leaders propose stamps from far ahead, and followers take them",
		Edits:  []Edit{{File: "raft/stamps/stamps.go", Old: "\treturn &Judge{", New: "\topts.Limit = 0\n\treturn &Judge{"}},
		Faults: []string{"clock-far"},
	}, {
		Name: "ack-before-commit", Breaks: "APP-2", What: "an entry counts as committed when one node has it",
		Edits: []Edit{{
			Module: hashicorpRaft, File: "commitment.go",
			Old: "quorumMatchIndex := matched[(len(matched)-1)/2]",
			New: "quorumMatchIndex := matched[len(matched)-1]",
		}},
	}, {
		Name: "unknown-as-refused", Breaks: "APP-10, D4i", What: "when the leadership is lost after a proposal, the client is told that the append was refused",
		Edits: []Edit{{
			File: "raft/propose.go",
			Old:  "return fmt.Errorf(\"%w: %w\", ErrUnknown, err)",
			New:  "return fmt.Errorf(\"%w: %w\", ErrNotLeader, err)",
		}},
	}, {
		Name: "takeover-without-barrier", Breaks: "READ-2, D4e", What: "a new leader serves before it has applied the entries of earlier leaders",
		Edits: []Edit{{
			File: "raft/leadership.go",
			Old:  "if err := n.barrier(); err != nil {",
			New:  "if err := error(nil); err != nil {",
		}},
	}}
}

// machine are bugs of the state machine.
func machine() []Mutant {
	const apply, applyRun = "storage/apply.go", "storage/apply_run.go"
	return []Mutant{{
		Name: "replay-applied", Breaks: "D2", What: "after a restart, entries are applied again",
		Edits: []Edit{{
			File: apply,
			Old:  "\tif applied := s.applied.Load(); index <= applied.Index {\n\t\treturn nil, nil\n\t}\n",
			New:  "",
		}},
	}, {
		Name: "clock-in-apply", Breaks: "APP-5, D11", What: "each node stamps with its own time of day",
		Edits: []Edit{
			{File: apply, Old: "\t\"math\"\n", New: "\t\"math\"\n\t\"time\"\n"},
			{File: apply, Old: "max(prev.PersistedAt+1, clock),", New: "max(prev.PersistedAt+1, clock, time.Now().UnixNano()),"},
		},
	}, {
		Name: "stamp-not-clamped", Breaks: "APP-5, D7", What: "a proposal gets the leader's time as its stamp, even if that clock went back",
		Edits: []Edit{{File: apply, Old: "max(prev.PersistedAt+1, clock),", New: "clock,"}},
	}, {
		Name: "map-order-in-apply", Breaks: "D11", What: "apply iterates over the runs of a proposal in map order",
		Edits: []Edit{{
			File: apply,
			Old:  "\tfor _, r := range a.touched {\n\t\ta.effects = ",
			New:  "\torder := map[*run]bool{}\n\tfor _, r := range a.touched {\n\t\torder[r] = true\n\t}\n\tfor r := range order {\n\t\ta.effects = ",
		}},
	}, {
		Name: "dedupe-in-memory-only", Breaks: "IDM-6", What: "duplicates of events from before the node's start are not recognised",
		Edits: []Edit{{File: applyRun, Old: "r := &run{ref: ref}", New: "r := &run{ref: ref, receipts: map[record.KeyPrefix]struct{}{}}"}},
	}, {
		Name: "dedupe-window", Breaks: "IDM-6", What: "a run remembers at most its last 64 keys",
		Edits: []Edit{{
			File: "storage/active.go",
			Old:  "\tif len(r.receipts) == maxIndexed {\n\t\ta.unindex(r)\n\t\treturn\n\t}\n",
			New:  "\tif len(r.receipts) >= 64 {\n\t\tclear(r.receipts)\n\t}\n",
		}},
	}, {
		Name: "evicted-is-new", Breaks: "IDM-6, D6", What: "a run whose receipts did not fit in memory takes every key as new",
		Edits: []Edit{{
			File: "storage/active.go",
			Old:  "\tr.receipts = nil\n",
			New:  "\tr.receipts = map[record.KeyPrefix]struct{}{}\n",
		}},
		Faults: []string{"client-reset", "late-reset", "client-cut", "reset"}, Every: 300 * time.Millisecond,
	}, {
		Name: "attempt-assigned-twice", Breaks: "IDM-10", What: "apply takes an assigned attempt that another event of the type was given in the meantime",
		Edits: []Edit{{File: "storage/recurring.go", Old: "if rec.Attempt <= last {", New: "if rec.Attempt < last {"}},
	}, {
		Name: "expectation-before-duplicate", Breaks: "APP-4", What: "a retry of a conditional append that was stored is told of a conflict",
		Edits: []Edit{{File: apply, Old: "unmet(r, m, created || fresh > 0)", New: "unmet(r, m, created || fresh >= 0)"}},
	}, {
		Name: "chain-from-wrong-head", Breaks: "APP-11", What: "the digest chain of a run that is read from disk starts again",
		Edits: []Edit{{
			File: applyRun,
			Old:  "\tif r.metadata, err = a.rows.Metadata(ref); err != nil {",
			New:  "\tr.head.Chain = [32]byte{}\n\tif r.metadata, err = a.rows.Metadata(ref); err != nil {",
		}},
	}, {
		Name: "install-forgets", Breaks: "D5", What: "the runs in memory survive the store that a snapshot has replaced",
		Edits:  []Edit{{File: "storage/install.go", Old: "\ts.active = newActive(s.opts.ActiveBytes)\n", New: ""}},
		Faults: []string{"split", "one-way", "partial", "transfer"}, Every: 500 * time.Millisecond,
	}}
}

// cached are bugs about the rows of machines that apply keeps in memory. A test of the store
// compares what stores read that keep all rows, few, or none.
func cached() []Mutant {
	bug := func(name, breaks, what, file, text, replacement string) Mutant {
		return Mutant{
			Name: name, Breaks: breaks, What: what, Package: "storage", Test: "TestRecentRowsD11",
			Edits: []Edit{{File: "storage/" + file, Old: text, New: replacement}},
		}
	}
	return []Mutant{
		bug("deleted-row-cached", "D11", "a row of a machine that was deleted stays in memory", "apply.go",
			"\t\t\ta.s.recent.Forget(r.Key)\n", ""),
		bug("refused-row-cached", "APP-3, D11", "what a machine writes is in memory before its command is applied", "tx.go",
			"\t\ttx.a.writes.Set(key, value)\n", "\t\ttx.a.writes.Set(key, value)\n\t\ttx.a.s.recent.Put(key, record.CloneValue(value))\n"),
		bug("replaced-row-cached", "D5", "the rows of machines in memory survive the store that a snapshot has replaced", "install.go",
			"s.recent = rowcache.New(s.opts.RowBytes)", "_ = rowcache.New(s.opts.RowBytes)"),
	}
}
