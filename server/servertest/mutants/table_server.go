package mutants

import "time"

// reads are bugs about what readers and watchers are told.
func reads() []Mutant {
	const read, window, watch = "server/replica/leader.go", "server/audit/window.go", "server/watch/watch.go"
	return []Mutant{{
		Name: "stale-read", Breaks: "READ-2", What: "a linearizable read is answered as a local one",
		Edits: []Edit{{
			File: read,
			Old:  "func (r *Replica) ReadIndex(ctx context.Context) error {\n",
			New:  "func (r *Replica) ReadIndex(ctx context.Context) error {\n\tif true {\n\t\treturn nil\n\t}\n",
		}},
	}, {
		Name: "read-lease", Breaks: "READ-2, D8",
		What:    "a leader does not confirm its leadership before a read; its lease check may be delayed",
		Edits:   []Edit{lateLease, {File: "raft/confirm.go", Old: "n.verify.Join(ctx)", New: "ctx.Err()"}},
		Control: []Edit{lateLease},
		Faults:  []string{"split", "one-way", "partial"},
	}, {
		Name: "read-behind-leader", Breaks: "READ-2, D8", What: "a follower answers before it has applied what the leader had",
		Edits: []Edit{{
			File: read,
			Old:  "\t\tposition, err := r.opts.Cluster.ReadPosition(ctx, leadership)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn r.Await(ctx, position)",
			New:  "\t\t_, err := r.opts.Cluster.ReadPosition(ctx, leadership)\n\t\treturn err",
		}},
	}, {
		Name: "drop-watermark", Breaks: "WATCH-3", What: "a resumed watch starts where the node is, even if that is behind the last watermark",
		Edits: []Edit{
			{
				File: watch,
				Old:  "w.s.node.View(ctx, w.runID, w.level, 0)",
				New:  "w.s.node.View(ctx, w.runID, runlogv1.Consistency_LOCAL, 0)",
			},
			{File: watch, Old: "return w.current.LastEventSeq > w.sent ||", New: "return w.current.LastEventSeq != w.sent ||"},
		},
	}, {
		Name: "list-not-fresh", Breaks: "READ-6", What: "a list does not wait for the projection to have what was acknowledged before the call",
		Edits: []Edit{{
			File: "server/runs/list.go",
			Old:  "\tapplied := s.node.Store().Applied()\n\treturn max(least, applied.Position()), nil",
			New:  "\treturn least, nil",
		}},
	}, {
		Name: "window-closes-early", Breaks: "READ-4, D7", What: "a window is closed as soon as the node's own clock is past it",
		Edits: []Edit{
			{File: window, Old: "w.to == 0 || w.to > now.PersistedAt {", New: "w.to == 0 || w.to > max(now.PersistedAt, s.opts.Clock().UnixNano()) {"},
			{File: window, Old: "a.through = min(a.through, w.to)", New: "a.through = w.to"},
		},
	}, {
		Name: "page-repeats", Breaks: "READ-3", What: "a page of a window begins with the last event of the one before",
		Edits: []Edit{{File: "storage/internal/read/window.go", Old: "r.cursor.Event = r.at[n-1] + 1", New: "r.cursor.Event = r.at[n-1]"}},
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
		Name: "key-not-kept", Breaks: "READ-4", What: "a restarted node forgets a signing key that its log names and its store does not have yet",
		Edits: []Edit{{
			File: "server/checkpoint/keyring.go",
			Old:  "func(other heldKey) bool { return other.number <= k.number })",
			New:  "func(heldKey) bool { return true })",
		}},
		Faults: []string{"rotate-key", "kill"}, Every: 200 * time.Millisecond,
	}, {
		Name: "key-not-given", Breaks: "READ-4", What: "a new signing key is on one disk alone until the others have read the log",
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
			File: "server/replica/append.go",
			Old:  "\tp, err := r.admit(a, around, tenant, tenant.Name+line)\n",
			New: `	if n := len(a.Events); n > 1 && around == nil {
		first, rest := *a, *a
		first.Events, rest.Events, rest.ExpectedLastSeq, rest.Create = a.Events[:n/2], a.Events[n/2:], nil, nil
		done, err := r.Append(ctx, &first)
		if err != nil {
			return Appended{}, err
		}
		more, err := r.Append(ctx, &rest)
		for i := range more.Diverged {
			more.Diverged[i] += n / 2
		}
		more.Results, more.Diverged = append(done.Results, more.Results...), append(done.Diverged, more.Diverged...)
		return more, err
	}
	p, err := r.admit(a, around, tenant, tenant.Name+line)
`,
		}},
	}, {
		Name: "forward-unknown-as-refused", Breaks: "APP-10, D8", What: "a forwarded call whose leader is lost counts as refused",
		Edits: []Edit{{
			File: "server/rpc/forward.go",
			Old:  "\tcase !sent:\n",
			New:  "\tcase !sent, st.Code() == codes.Unavailable:\n",
		}},
	}}
}
