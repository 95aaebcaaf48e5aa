package mutants

import (
	"slices"
	"time"
)

// All returns the table.
func All() []Mutant {
	return slices.Concat(disks(), consensus(), machine(), reads(), proofs(), requests())
}

// disks are bugs about what is on stable storage.
func disks() []Mutant {
	return []Mutant{{
		Name: "no-fsync", Breaks: "APP-2, D2", What: "what is written to the log is not synced",
		Edits: []Edit{{
			File: "raft/wal_files.go",
			Old:  "\tif err := datasync(f.File); err != nil {\n\t\treturn err\n\t}\n\tif f.named {",
			New:  "\tif f.named {",
		}},
	}, {
		Name: "no-dir-sync", Breaks: "APP-2, D2", What: "directories are not synced, so that files may be nameless after a loss of power",
		Edits: []Edit{{
			File: "storage/replace.go",
			Old:  "errors.Join(dir.Sync(), dir.Close())",
			New:  "dir.Close()",
		}},
	}, {
		Name: "vote-not-synced", Breaks: "D3", What: "small files, as that of term and vote, are replaced by ones that are not synced",
		Edits: []Edit{{
			File: "storage/replace.go",
			Old:  "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n",
			New:  "",
		}},
	}, {
		Name: "tail-not-written-again", Breaks: "APP-2, D3", What: "after a sync that failed, what memory still shows of the log is taken for written",
		Edits: []Edit{{
			File: "raft/rotation.go",
			Old:  "err = writeAgain(f)",
			New:  "err = nil",
		}},
		Faults: []string{"sync-error"}, Every: time.Second,
	}, {
		Name: "tail-not-synced", Breaks: "APP-2, D3", What: "what a killed process has written to the log and not synced counts when the next one finds it",
		Edits: []Edit{{
			File: "raft/rotation.go",
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
		Name: "log-error-ignored", Breaks: "D3, D10", What: "a write to the log that failed is taken for a good one",
		Edits: []Edit{{
			File: "raft/log_store.go",
			Old:  "logs[len(logs)-1].Index, err)\n\t\ts.fail(err)\n\t\treturn err\n",
			New:  "logs[len(logs)-1].Index, err)\n\t\treturn nil\n",
		}},
	}}
}

// consensus are bugs about who leads, and what is committed.
func consensus() []Mutant {
	return []Mutant{{
		Name: "heartbeat-fast-path", Breaks: "D4a, I9",
		What: "heartbeats are answered beside the main loop, which may be held up where it has just looked who leads",
		Edits: []Edit{heldUp, {
			File: "raft/transport.go",
			Old:  "func (transport) SetHeartbeatHandler(func(hraft.RPC)) {}",
			New:  "func (t transport) SetHeartbeatHandler(f func(hraft.RPC)) { t.NetworkTransport.SetHeartbeatHandler(f) }",
		}},
		Control: []Edit{heldUp},
		Faults:  []string{"split", "one-way", "partial"},
	}, {
		Name: "vote-not-kept", Breaks: "D3", What: "a node gives its vote in one term to whoever asks",
		Edits: []Edit{{
			File: "raft/stable_store.go",
			Old:  "\treturn s.change(func(v *vote) { v.candidate = candidate })",
			New:  "\t_ = candidate\n\treturn nil",
		}, lateVotes, lateHeartbeat},
		Control: []Edit{lateVotes, lateHeartbeat},
		Faults:  []string{"partial", "kill", "restart"}, Every: 500 * time.Millisecond,
	}, {
		Name: "sends-after-leading", Seeds: []uint64{7047, 7191, 7047, 2266}, Breaks: "D3", What: "entries of a later leader are sent in the name of an earlier one",
		Edits: []Edit{{
			File: "raft/transport.go",
			Old:  "resp *hraft.AppendEntriesResponse) error {\n\tif t.term() != req.Term {",
			New:  "resp *hraft.AppendEntriesResponse) error {\n\tif false {",
		}, lateRetry(5)},
		Control: []Edit{lateRetry(5)},
		Faults:  []string{"power-loss", "slow-link", "transfer"}, Every: 200 * time.Millisecond,
	}, {
		Name: "commits-what-was-not-sent", Seeds: []uint64{645, 339, 645}, Breaks: "APP-2, I9", What: "a follower is told that more is committed than it was sent, and takes its own entries for that",
		Edits: []Edit{{
			File: "raft/transport.go",
			Old:  "min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))",
			New:  "req.LeaderCommitIndex",
		}, lateRetry(20), lateEntry},
		Control: []Edit{lateRetry(20), lateEntry},
		Faults:  []string{"power-loss", "kill"}, Every: time.Second,
	}, {
		Name: "ack-before-commit", Breaks: "APP-2", What: "an entry counts as committed where one node has it",
		Edits: []Edit{{
			Module: hashicorpRaft, File: "commitment.go",
			Old: "quorumMatchIndex := matched[(len(matched)-1)/2]",
			New: "quorumMatchIndex := matched[len(matched)-1]",
		}},
	}, {
		Name: "unknown-as-refused", Breaks: "APP-10, D4i", What: "leadership that is lost after a proposal is told as a refusal",
		Edits: []Edit{{
			File: "raft/propose.go",
			Old:  "return fmt.Errorf(\"%w: %w\", ErrUnknown, err)",
			New:  "return fmt.Errorf(\"%w: %w\", ErrNotLeader, err)",
		}},
	}, {
		Name: "takeover-without-barrier", Breaks: "READ-2, D4e", What: "a new leader serves before it has applied what earlier ones left",
		Edits: []Edit{{
			File: "raft/node.go",
			Old:  "if err := n.barrier(); err != nil {",
			New:  "if err := error(nil); err != nil {",
		}},
	}}
}

// machine are bugs of the state machine.
func machine() []Mutant {
	const apply, applyRun = "storage/apply.go", "storage/apply_run.go"
	return []Mutant{{
		Name: "replay-applied", Breaks: "D2", What: "entries that were applied before a restart are applied again",
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
		Name: "stamp-not-clamped", Breaks: "APP-5, D7", What: "a proposal is stamped as the leader's clock says, also where that went back",
		Edits: []Edit{{File: apply, Old: "max(prev.PersistedAt+1, clock),", New: "clock,"}},
	}, {
		Name: "map-order-in-apply", Breaks: "D11", What: "apply goes through the runs of a proposal in the order of a map",
		Edits: []Edit{{
			File: apply,
			Old:  "\tfor _, r := range a.touched {\n\t\ta.effects = ",
			New:  "\torder := map[*run]bool{}\n\tfor _, r := range a.touched {\n\t\torder[r] = true\n\t}\n\tfor r := range order {\n\t\ta.effects = ",
		}},
	}, {
		Name: "dedupe-in-memory-only", Breaks: "IDM-6", What: "only duplicates of what was appended since the node was started are known",
		Edits: []Edit{{File: applyRun, Old: "r := &run{ref: ref}", New: "r := &run{ref: ref, receipts: map[keyPrefix]struct{}{}}"}},
	}, {
		Name: "dedupe-window", Breaks: "IDM-6", What: "a run remembers its last 64 keys or fewer",
		Edits: []Edit{{
			File: "storage/active.go",
			Old:  "\tif len(r.receipts) == maxIndexed {\n\t\ta.unindex(r)\n\t\treturn\n\t}\n",
			New:  "\tif len(r.receipts) >= 64 {\n\t\tclear(r.receipts)\n\t}\n",
		}},
	}, {
		Name: "evicted-is-new", Breaks: "IDM-6, D6", What: "a run whose receipts did not fit in memory takes every key for new",
		Edits: []Edit{{
			File: "storage/active.go",
			Old:  "\tr.receipts = nil\n",
			New:  "\tr.receipts = map[keyPrefix]struct{}{}\n",
		}},
		Faults: []string{"client-reset", "late-reset", "client-cut", "reset"}, Every: 300 * time.Millisecond,
	}, {
		Name: "expectation-before-duplicate", Breaks: "APP-4", What: "a retry of a conditional append that was stored is told of a conflict",
		Edits: []Edit{{File: apply, Old: "unmet(r, m, created || fresh > 0)", New: "unmet(r, m, created || fresh >= 0)"}},
	}, {
		Name: "chain-from-wrong-head", Breaks: "APP-11", What: "the chain of a run that was read from disk begins anew",
		Edits: []Edit{{
			File: applyRun,
			Old:  "\tif r.metadata, err = a.rows.metadata(ref); err != nil {",
			New:  "\tr.head.chain = [32]byte{}\n\tif r.metadata, err = a.rows.metadata(ref); err != nil {",
		}},
	}, {
		Name: "install-forgets", Breaks: "D5", What: "what memory knows of runs outlives the store that a snapshot has replaced",
		Edits:  []Edit{{File: "storage/install.go", Old: "\ts.active = newActive(s.opts.ActiveBytes)\n", New: ""}},
		Faults: []string{"split", "one-way", "partial", "transfer"}, Every: 500 * time.Millisecond,
	}}
}
