package mutants

import "time"

// reads are bugs about what readers and watchers are told.
func reads() []Mutant {
	const read, window = "server/read.go", "server/audit_window.go"
	return []Mutant{{
		Name: "stale-read", Breaks: "READ-2", What: "a linearizable read is answered as a local one",
		Edits: []Edit{{
			File: read,
			Old:  "return s.askLeader(ctx, func(leadership *cluster.Leadership) error { return s.readableIn(ctx, leadership) })",
			New:  "return nil",
		}},
	}, {
		Name: "read-lease", Breaks: "READ-2, D8",
		What:    "a leader does not ask whether it still leads; Raft's loop may be held up where it is to find out",
		Edits:   []Edit{lateLease, {File: "raft/confirm.go", Old: "return n.verify.join(ctx)", New: "return nil"}},
		Control: []Edit{lateLease},
		Faults:  []string{"split", "one-way", "partial"},
	}, {
		Name: "read-behind-leader", Breaks: "READ-2, D8", What: "a follower answers before it has applied what the leader had",
		Edits: []Edit{{
			File: read,
			Old:  "\tposition, err := s.cluster.ReadPosition(ctx, leadership)\n\tif err != nil {\n\t\treturn err\n\t}\n\treturn s.awaitPosition(ctx, position)",
			New:  "\t_, err := s.cluster.ReadPosition(ctx, leadership)\n\treturn err",
		}},
	}, {
		Name: "drop-watermark", Breaks: "WATCH-3", What: "a watch that is taken up again begins where the node is, whatever was told before",
		Edits: []Edit{
			{
				File: "server/watch.go",
				Old:  "w.s.view(ctx, runID, runlogv1.Consistency_LINEARIZABLE, 0)",
				New:  "w.s.view(ctx, runID, runlogv1.Consistency_LOCAL, 0)",
			},
			{File: "server/watch.go", Old: "return w.current.LastEventSeq > w.sent ||", New: "return w.current.LastEventSeq != w.sent ||"},
		},
	}, {
		Name: "window-closes-early", Breaks: "READ-4, D7", What: "a window is closed as soon as the node's own clock is past it",
		Edits: []Edit{
			{File: window, Old: "w.to == 0 || w.to > now.PersistedAt {", New: "w.to == 0 || w.to > max(now.PersistedAt, s.opts.Clock().UnixNano()) {"},
			{File: window, Old: "a.through = min(a.through, w.to)", New: "a.through = w.to"},
		},
	}, {
		Name: "page-repeats", Breaks: "READ-3", What: "a page of a window begins with the last event of the one before",
		Edits: []Edit{{File: "storage/window.go", Old: "r.cursor.Event = r.at[n-1] + 1", New: "r.cursor.Event = r.at[n-1]"}},
	}, {
		Name: "projector-skips", Breaks: "PRJ-1, PRJ-2", What: "of the events of one append only the last is folded",
		Edits: []Edit{{
			File: "projector/round.go",
			Old:  "ReduceReporting(f.Now, c.Records, alert)",
			New:  "ReduceReporting(f.Now, c.Records[len(c.Records)-1:], alert)",
		}},
	}}
}

// proofs are bugs about what the cluster signs with.
func proofs() []Mutant {
	return []Mutant{{
		Name: "key-not-kept", Breaks: "READ-4", What: "a node that has just been started forgets the signing key that the log names and its store not yet",
		Edits: []Edit{{
			File: "server/checkpoint/keyring.go",
			Old:  "func(other heldKey) bool { return other.number <= k.number })",
			New:  "func(heldKey) bool { return true })",
		}},
		Faults: []string{"rotate-key", "kill"}, Every: 200 * time.Millisecond,
	}, {
		Name: "key-not-given", Breaks: "READ-4", What: "a new signing key is on one disk alone until the others look what the log has",
		Edits: []Edit{{
			File: "server/checkpoint/key.go",
			Old:  "if err := s.giveLocked(k); err != nil {",
			New:  "if err := error(nil); err != nil {",
		}},
		Faults: []string{"replace"},
	}}
}

// requests are bugs on an append's way to the leader.
func requests() []Mutant {
	return []Mutant{{
		Name: "batch-half-stored", Breaks: "APP-3", What: "an append of several events is proposed in two halves",
		Edits: []Edit{{
			File: "server/append.go",
			Old:  "\tcmd, err := storage.EncodeAppend(a)\n",
			New: `	if n := len(a.Events); n > 1 {
		first, rest := *a, *a
		first.Events, rest.Events, rest.ExpectedLastSeq, rest.Create = a.Events[:n/2], a.Events[n/2:], nil, nil
		_, results, err := s.append(ctx, &first)
		if err != nil {
			return storage.Outcome{}, nil, err
		}
		outcome, more, err := s.append(ctx, &rest)
		return outcome, append(results, more...), err
	}
	cmd, err := storage.EncodeAppend(a)
`,
		}},
	}, {
		Name: "forward-unknown-as-refused", Breaks: "APP-10, D8", What: "a leader that is lost while it is asked is taken for one that has refused",
		Edits: []Edit{{
			File: "server/forward.go",
			Old:  "\tcase !sent:\n",
			New:  "\tcase !sent, st.Code() == codes.Unavailable:\n",
		}},
	}}
}
