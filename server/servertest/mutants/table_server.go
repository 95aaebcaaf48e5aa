package mutants

import (
	"slices"
	"time"
)

// reads are bugs about what readers and watchers get.
func reads() []Mutant {
	const replica, watch, window in = "server/replica", "server/watch", "server/audit"
	return []Mutant{
		bug("stale-read", "READ-2", "a linearizable read is answered as a local one",
			replica.begin("(Replica) ReadIndex", "if true { return nil }")),
		bug("read-lease", "READ-2, D8",
			"a leader does not confirm its leadership before a read; its lease check may be delayed",
			in("raft").replace("(Node) ConfirmLeader(c)", "n.verify.Join(c)", "c.Err()")).
			delayed(lateLease).under(0, "split", "one-way", "partial"),
		bug("read-behind-leader", "READ-2, D8", "a follower answers before it has applied what the leader had",
			replica.replace("(Replica) ReadIndex", "return r.Await(c, p)", "_ = p\nreturn nil")),
		bug("drop-watermark", "WATCH-3",
			"a resumed watch starts where the node is, even if that is behind the last watermark",
			watch.replace("(runWatch) look", "w.level", "runlogv1.Consistency_LOCAL"),
			watch.replace("(runWatch) isNews", "w.current.LastEventSeq > w.sent", "w.current.LastEventSeq != w.sent")),
		bug("list-not-fresh", "READ-6",
			"a list does not wait for the projection to have what was acknowledged before the call",
			in("server/runs").replace("(Service) least", "max(l, a.Position())", "l")),
		bug("window-closes-early", "READ-4, D7", "a window is closed as soon as the node's own clock is past it",
			window.replace("(s Service) closeWindow", "w.to > n.PersistedAt",
				"w.to > max(n.PersistedAt, s.opts.Clock().UnixNano())"),
			window.replace("(Service) closeWindow", "min(a.through, t)", "t")),
		bug("page-repeats", "READ-3", "a page of a window begins with the last event of the one before",
			in("storage/internal/read").replace("(WindowReader) Next", "r.at[n] + 1", "r.at[n]")),
		bug("projector-skips", "PRJ-1, PRJ-2", "of the events of one append only the last is folded",
			in("projector").replace("(round) foldSnapshot", "run.ReduceReporting(n, c.Records, a)",
				"run.ReduceReporting(n, c.Records[len(c.Records)-1:], a)")),
	}
}

// trees are bugs about the tree of records.
func trees() []Mutant {
	const tree, storage in = "projector/tree", "storage"
	return append(foundBy(storage, "TestChainOfFactsTR1",
		bug("refused-stays-in-chains", "TR-1", "the chain digests of a refused command stay in memory as those of records",
			storage.remove("(undo) rollback", "a.chain = a.chain[:n]")),
	), []Mutant{
		bug("leaf-skipped", "TR-1", "of an append of several events, the last are not folded into the tree of records",
			tree.replace("(Folder) Fold", "for i := range f.chain { b }", "for i := range f.chain[:len(f.chain)-len(f.chain)/3] { b }")),
		bug("tile-torn", "TR-1", "after a crash, the hashes that fill no tile yet may be older than the watermark of the tree",
			tree.replace("(f Folder) Write(t)", "f.tx != t || !f.unwritten", "f.tx != t || !f.unwritten || f.size%4 != 0")).
			under(time.Second, "kill", "restart"),
	}...)
}

// proofs are bugs about what the cluster signs with.
func proofs() []Mutant {
	const checkpoint in = "server/checkpoint"
	return []Mutant{
		bug("key-not-kept", "READ-4",
			"a restarted node forgets a signing key that its log names and its store does not have yet",
			checkpoint.replace("(keyring) keep", "o.number <= k.number", "true")).
			under(200*time.Millisecond, "rotate-key", "kill"),
		bug("key-not-given", "READ-4", "a new signing key is on one disk alone until the others have read the log",
			checkpoint.replace("(Maker) makeKeyLocked", "s.giveLocked()", "error(nil)")).under(0, "replace"),
	}
}

// witnesses are bugs about the signatures of witnesses, which no simulated world has.
func witnesses() []Mutant {
	const signing, cosign, client in = "storage/machine/signing", "server/cosign", "audit/witness"
	return slices.Concat(foundBy("storage", "TestSigned",
		bug("cosignature-before-checkpoint", "TR-4", "a signature of a witness is stored although the checkpoint is not in the log",
			signing.after("storeCosignature(t, m)", "k := table.In(checkpointTable).Number(m.GetPosition()); row, err := table.Get[recordv1.Checkpoint](t, k)", `
				if row == nil {
					row = &recordv1.Checkpoint{Position: m.GetPosition()}
				}`)),
	), foundBy(cosign, "TestCosignedTR4",
		bug("proof-of-another-size", "TR-4", "a witness gets the proof that ends before the checkpoint",
			client.replace("(c Client) Cosign", "prove(ctx, from, later.Size)", "prove(ctx, from, max(from, later.Size-1))")),
	), foundBy(cosign, "TestDeposedLeaderTR4",
		bug("conflict-not-judged", "TR-4", "the answer to a leader that was deposed without knowing it counts as that to a second history",
			cosign.begin("(asker) judge(c, p, e)", "if true { return e }")),
	))
}

// requests are bugs on an append's way to the leader.
func requests() []Mutant {
	const rpc in = "server/rpc"
	return append(foundBy(rpc, "TestForwardingFailsAPP10",
		bug("forward-unknown-as-refused", "APP-10, D8", "a forwarded call whose leader is lost counts as refused",
			rpc.replace("ForwardingError(c, s)", "t := status.Convert(); !s", "!s, t.Code() == codes.Unavailable")),
	), []Mutant{
		bug("batch-half-stored", "APP-3", "an append of several events is proposed in two halves",
			in("server/replica").before("(r Replica) append(c, a, o)", "r.admit()", `
				if n := len(a.Events); n > 1 && o == nil {
					first, rest := *a, *a
					first.Events, rest.Events = a.Events[:n/2], a.Events[n/2:]
					rest.ExpectedLastSeq, rest.Create = nil, nil
					done, err := r.Append(c, &first)
					if err != nil {
						return Appended{}, err
					}
					more, err := r.Append(c, &rest)
					for i := range more.Diverged {
						more.Diverged[i] += n / 2
					}
					more.Results = append(done.Results, more.Results...)
					more.Diverged = append(done.Diverged, more.Diverged...)
					return more, err
				}`)),
	}...)
}

// emergencies are bugs about places that callers keep, and about calls without a leader. No client
// of a simulated world keeps a place over a restore, and no operator of it works without a leader.
func emergencies() []Mutant {
	const accesslog, rpc, subscriptions in = "server/accesslog", "server/rpc", "server/subscriptions"
	return slices.Concat(foundBy("server/offline", "TestKeptREAD7",
		bug("position-of-another-incarnation", "READ-7", "a position that a cluster gave before it was restored is taken for a place of now",
			rpc.replace("ParsePosition", "o && f == i && e == nil", "o && f == f && e == nil")),
		bug("token-of-another-incarnation", "READ-7", "a token of before a restore is taken for one of now",
			subscriptions.replace("(Service) refs", "strings.CutPrefix(d, o)", "d[min(len(d), len(o)):], len(o) > 0")),
	), foundBy(accesslog, "TestJournalCrashSEC13",
		bug("late-record-lost", "SEC-13", "a call is answered before its record is on stable storage",
			accesslog.replace("(journal) add", "j.file.Sync()", "error(nil)")),
	))
}

// access are bugs about what a caller of one tenant may see and do.
func access() []Mutant {
	const rpc, tenant in = "server/rpc", "storage/machine/tenant"
	return []Mutant{
		bug("filter-dropped", "SEC-4",
			"a list, a window and a watch of any tenant show those that the caller does not see",
			rpc.replace("ShownTenants(c, a)", `a != "" && i.Sees(a)`, `a == "" || i.Sees(a)`)),
		bug("foreign-run-shown", "SEC-4", "a read by a run's name does not ask whose the run is",
			in("server/replica").replace("(Replica) view", "auth.From(c).Sees(t)", "auth.From(c) != nil")),
		bug("foreign-run-written", "SEC-4", "an event without a tenant is appended to any run",
			rpc.replace("CheckDecision", "e == nil && !i.Sees(o)", `e == nil && i == nil && o != ""`)),
		bug("passport-unsigned", "SEC-3", "the identity of a forwarded call counts without the code of a member",
			in("server/auth").replace("(Passports) Verify", "!hmac.Equal(c, t)", "hmac.Equal(c, nil)")).
			under(0, "client-slow"),
		bug("stream-not-checked", "SEC-5", "a stream is not checked again after it was opened",
			rpc.remove("(Access) whileAllowed", "defer t.Stop(); t.Reset()")).under(0, "client-slow"),
		bug("limit-not-replicated", "SEC-6", "the limits of a tenant are in the memory of the node that has set them",
			in("server/access").replace("(s Service) SetTenantLimits", "s.execute(c)(tenant.SetLimits(l))",
				"tenant.Keep(s.opts.Node.Store(), l)"),
			tenant.before("Read(s, t) (o)", "read(v, Default)", `
				if l, ok := kept.Load(s); ok && l.(*Limits).Tenant == t {
					o = l.(*Limits)
				}`),
			tenant.before("read", "", `
				var kept sync.Map

				// Keep is the bug.
				func Keep(s *storage.Store, l *Limits) error {
					kept.Store(s, l)
					return nil
				}
				`).importing("sync")).under(0, "transfer"),
	}
}
