package mutants

import (
	"slices"
	"time"
)

// All returns the table.
func All() []Mutant {
	return slices.Concat(disks(), rotten(), consensus(), machine(), packed(), clamped(), reads(), trees(), proofs(), witnesses(), requests(), access(), clientSide(),
		kept(), cached(), queues(), fences(), taken(), decisions(), subscriptions(), deliveries(), leases(), holds(), emergencies())
}

// in is a package in which edits are made.
type in string

// hashicorp is Raft's package.
const hashicorp in = hashicorpRaft

func (p in) replace(head, find, with string) Edit {
	return Edit{Package: string(p), In: head, Find: find, With: with}
}

func (p in) remove(head, find string) Edit {
	return Edit{Package: string(p), In: head, Find: find, Op: Remove}
}

func (p in) before(head, find, with string) Edit {
	return Edit{Package: string(p), In: head, Find: find, Op: Before, With: with}
}

func (p in) after(head, find, with string) Edit {
	return Edit{Package: string(p), In: head, Find: find, Op: After, With: with}
}

func (p in) begin(head, with string) Edit {
	return Edit{Package: string(p), In: head, Op: Begin, With: with}
}

func (e Edit) importing(packages ...string) Edit {
	e.Imports = packages
	return e
}

func bug(name, breaks, what string, edits ...Edit) Mutant {
	return Mutant{Name: name, Breaks: breaks, What: what, Edits: edits}
}

// under names the faults, and the scenarios, that lead to a mutant.
func (m Mutant) under(every time.Duration, faults ...string) Mutant {
	m.Every, m.Faults = every, faults
	return m
}

// held lets the trial hold its worlds.
func (m Mutant) held() Mutant {
	m.Held = true
	return m
}

// delayed adds edits that are no bugs.
func (m Mutant) delayed(edits ...Edit) Mutant {
	m.Edits, m.Control = slices.Concat(edits, m.Edits), edits
	return m
}

// foundBy names the test that looks for mutants.
func foundBy(pkg in, test string, all ...Mutant) []Mutant {
	for i := range all {
		all[i].Package, all[i].Test = string(pkg), test
	}
	return all
}

// disks are bugs about what is on stable storage.
func disks() []Mutant {
	const wal, files in = "raft/internal/wal", "storage/internal/files"
	return slices.Concat(foundBy(files, "TestMarkersD2",
		bug("marker-before-manifest", "D2", "the marker of a MANIFEST may be on the disk before the MANIFEST",
			files.replace("(markers) Create", "m.before(p)", "error(nil)")),
		bug("marker-removed-early", "D2", "the marker before it is removed first",
			files.replace("(markers) Remove", "m.before(p)", "error(nil)")),
	), foundBy(wal, "TestTornWritesPileUpD2",
		bug("torn-write-stays", "D2", "what a torn write has left stays behind the end of the log",
			wal.replace("repairTail", "wipeTorn()", "error(nil)")),
	), []Mutant{
		bug("no-fsync", "APP-2, D2", "what is written to the log is not synced",
			wal.remove("(segmentFile) Sync", "datasync()")),
		bug("no-dir-sync", "APP-2, D2",
			"directories are not synced, so that a loss of power may take the names of files",
			files.replace("SyncDir", "errors.Join(d.Sync(), c)", "c")),
		bug("vote-not-synced", "D3", "small files, such as that of term and vote, are not synced",
			files.remove("Replace", "f.Sync()")),
		bug("tail-not-written-again", "APP-2, D3",
			"after a failed sync, what memory still shows of the log counts as written",
			wal.replace("settleTail", "writeAgain()", "nil")).under(time.Second, "sync-error"),
		bug("tail-not-synced", "APP-2, D3",
			"the log's unsynced end of a killed process counts as written at the next start",
			wal.remove("settleTail", "writeAgain()"), wal.remove("settleTail", "f.Sync()")).
			under(700*time.Millisecond, "crash-point"),
		bug("truncate-before-flush", "D2", "the log drops entries that the store has not flushed",
			in("raft").replace("(snapshot) Persist", "e := s.MakeDurable()", "var e error")),
		bug("log-error-ignored", "D3, D10", "a failed write to the log counts as a success",
			wal.replace("(Log) StoreLogs", "o.Fail(e); return e", "return nil"),
			wal.remove("(Log) StoreLogs", "o.Fail()")),
	})
}

// consensus are bugs about the leadership and about what is committed.
func consensus() []Mutant {
	const wal, transport, raft in = "raft/internal/wal", "raft/internal/transport", "raft"
	return []Mutant{
		bug("heartbeat-fast-path", "D4a, I9",
			"heartbeats are answered outside the main loop, which may be delayed after it has read its term",
			transport.replace("(Transport) SetHeartbeatHandler", "",
				`func (t Transport) SetHeartbeatHandler(f func(hraft.RPC)) {
					t.NetworkTransport.SetHeartbeatHandler(f)
				}`)).
			delayed(heldUp).under(0, "split", "one-way", "partial"),
		bug("vote-not-kept", "D3", "a node votes for several candidates in one term",
			wal.replace("(Stable) Set", "c := append(); return s.change()", "_ = c\nreturn nil")).
			delayed(lateVotes, lateHeartbeat).under(500*time.Millisecond, "partial", "kill", "restart"),
		bug("sends-after-leading", "D3", "a deposed leader sends entries of a later leader in its own term",
			transport.replace("(Transport) AppendEntries", "t.Term() != r.Term", "false")).
			delayed(lateRetry("5")).under(time.Second, "deposed"),
		bug("commits-what-was-not-sent", "APP-2, I9",
			"a leader sends a commit index beyond what it sent, and the follower applies its own entries there",
			transport.replace("(Sender) Prepare", "min(r.LeaderCommitIndex, m)", "r.LeaderCommitIndex")).
			delayed(lateRetry("20"), lateEntry).under(time.Second, "stale-tail"),
		bug("older-copy-accepted", "APP-2, D3",
			"a node goes on although another member remembers more than its data directory has",
			in("raft/witness").replace("(Witness) judge", `f := y.fault(); f == ""`, "true")).
			under(time.Second, "older-copy"),
		bug("stamps-far-ahead", "APP-5", "leaders propose stamps from far ahead, and followers take them",
			in("raft/stamps").before("New(o)", "Judge{}", "o.Limit = 0"),
			in("raft/stamps").replace("(c clock) slewed", "stamp + min(max(wall - stamp, -most), most)", "max(wall, stamp-most)")).under(0, "clock-far"),
		bug("stamps-follow-clock", "APP-5", "stamps follow the leader's clock at once",
			in("raft/stamps").replace("(c clock) slewed", "stamp + min(max(wall - stamp, -most), most)", "max(wall, stamp-most)")).
			under(time.Second, "clock-jump"),
		bug("ack-before-commit", "APP-2", "an entry counts as committed when one node has it",
			hashicorp.replace("(commitment) recalculate", "m[(len(m)-1)/2]", "m[len(m)-1]")),
		bug("unknown-as-refused", "APP-10, D4i",
			"when the leadership is lost after a proposal, the client is told that the append was refused",
			raft.replace("refusal(p, e)", "fmt.Errorf(f, ErrUnknown, e)", "fmt.Errorf(f, ErrNotLeader, e)")),
		bug("takeover-without-barrier", "READ-2, D4e",
			"a new leader serves before it has applied the entries of earlier leaders",
			raft.replace("(Node) takeOver", "n.barrier()", "error(nil)")),
	}
}

// Edits that are no bugs: they delay a process, or a request, where a real one can be delayed too.
var (
	// heldUp delays Raft's loop after it has read its term, before it appends entries.
	heldUp = hashicorp.before("(Raft) dispatchLogs", "n := time.Now(); t := r.getCurrentTerm()", `
		if n.Nanosecond()/1e6%8 == 0 {
			time.Sleep(time.Duration(n.Nanosecond()) * 5)
		}`)
	// lateLease delays a leader before it checks its lease.
	lateLease = hashicorp.after("(Raft) leaderLoop", "l := time.After(); <-l",
		"time.Sleep(time.Duration(time.Now().Nanosecond()) * 3)")
	// lateEntry delays a new leader before its first entry.
	lateEntry = hashicorp.before("(Raft) runLeader", "logFuture{}", "time.Sleep(1500 * time.Millisecond)")
	// lateHeartbeat delays a new leader before its first heartbeat.
	lateHeartbeat = hashicorp.before("(Raft) runLeader", "r.startStopReplication()",
		"time.Sleep(500 * time.Millisecond)")
	// lateVotes delays the requests of candidates, so that more of them meet in one term.
	lateVotes = hashicorp.before("(Raft) electSelf", "t.RequestVote()",
		"time.Sleep(time.Duration(time.Now().Nanosecond()) / 2)")
)

// lateRetry makes the wait before a retry towards an unreachable follower constant, in tenths of a
// second.
func lateRetry(tenths string) Edit {
	return hashicorp.replace("(Raft) replicateTo", "backoff()", tenths+"*time.Second/10")
}

// machine are bugs of the state machine.
func machine() []Mutant {
	const storage in = "storage"
	return []Mutant{
		bug("replay-applied", "D2", "after a restart, entries are applied again",
			storage.remove("(Store) Apply(i)", "i <= a.Index")),
		bug("clock-in-apply", "APP-5, D11", "each node stamps with its own time of day",
			storage.replace("(Store) beginApply(p, c)", "max(s, c)",
				"max(s, c, time.Now().UnixNano())").importing("time")),
		bug("stamps-go-back", "APP-5, D7",
			"a proposal gets the leader's time as its stamp, even if that clock went back",
			storage.replace("(Store) beginApply(p, c)", "max(s, c)", "c"),
			in("raft/stamps").replace("(c clock) slewed(w)", "stamp + min(max(w - stamp, -most), most)", "w + 0*(stamp+most)")),
		bug("map-order-in-apply", "D11", "apply iterates over the runs of a proposal in map order",
			storage.replace("(applyTx) writeHeads", "for _, r := range a.touched { b }", `
				order := map[*run]bool{}
				for _, r := range a.touched {
					order[r] = true
				}
				for r := range order {b}`)),
		bug("dedupe-in-memory-only", "IDM-6", "duplicates of events from before the node's start are not recognised",
			storage.replace("(applyTx) activeRun", "run{ref: r}",
				"run{ref: r, receipts: map[record.KeyPrefix]struct{}{}}")),
		bug("dedupe-window", "IDM-6", "a run remembers at most its last 64 keys",
			storage.replace("(active) addReceipt", "if len(r) == maxIndexed {}", "if len(r) >= 64 { clear(r) }")),
		bug("evicted-is-new", "IDM-6, D6", "a run whose receipts did not fit in memory takes every key as new",
			storage.replace("(active) unindex", "r.receipts = nil", "r.receipts = map[record.KeyPrefix]struct{}{}")).
			under(300*time.Millisecond, "client-reset", "late-reset", "client-cut", "reset"),
		bug("attempt-assigned-twice", "IDM-10",
			"apply takes an assigned attempt that another event of the type was given in the meantime",
			storage.replace("(applyTx) assignedAttempt", "t || b || r.Attempt <= l", "t != t || r.Attempt < l")),
		bug("expectation-before-duplicate", "APP-4",
			"a retry of a conditional append that was stored is told of a conflict",
			storage.replace("(applyTx) decide", "unmet(r, m, c || f > 0, x)", "unmet(r, m, c || f >= 0, x)")),
		bug("chain-from-wrong-head", "APP-11", "the digest chain of a run that is read from disk starts again",
			storage.before("(applyTx) activeRun", "r.metadata", "r.head.Chain = [32]byte{}")),
		bug("install-forgets", "D5", "the runs in memory survive the store that a snapshot has replaced",
			storage.remove("(Received) install", "newActive()")).
			under(500*time.Millisecond, "split", "one-way", "partial", "transfer"),
	}
}

// packed are bugs about receipts of runs that have ended. Those of simulated runs fit in one row.
func packed() []Mutant {
	const storage, record in = "storage", "storage/internal/record"
	return slices.Concat(foundBy(storage, "TestPackedReceiptsLIFE9",
		bug("packed-is-new", "IDM-6, LIFE-9", "a duplicate of an event whose receipt is packed is stored again",
			storage.replace("(applyTx) receipt", "r.head.Packed == 0", "r.head.Packed >= 0")),
		bug("packed-again-loses", "IDM-6, LIFE-9", "packing late events loses the receipts that were packed before",
			storage.replace("(applyTx) packInto", "a.packRow(r, k, o, p)", "a.packRow(r, k, nil, p)")),
	), foundBy(storage, "TestPackingIsBoundedLIFE9",
		bug("packing-forgotten", "LIFE-9", "runs that were left to be packed are forgotten at a restart",
			storage.begin("(p packing) load", "if p.runs == nil { p.runs = map[uint64]struct{}{} }")),
		bug("packing-unbounded", "LIFE-9", "a proposal packs the runs in its turn, however large they are",
			storage.replace("(applyTx) plainFrom", "len(l) == packStep", "len(l) < 0")),
	), foundBy(record, "TestPackedReceiptsReadBackLIFE9",
		bug("packed-time-off-by-one", "IDM-6, LIFE-9", "a packed receipt answers with the time of the event behind its own",
			record.replace("(Packed) Find", "p.above(j) < a", "p.above(j) <= a")),
	))
}

// clamped is what apply makes of a proposal's time without the slewing of clocks before it. A
// conformance test of the store compares it with a model, and draws clocks that go back.
func clamped() []Mutant {
	const storage in = "storage"
	return foundBy(storage, "TestConformance",
		bug("stamp-not-clamped", "APP-5, D7", "apply takes the stamp of a proposal as it is",
			storage.replace("(Store) beginApply(p, c)", "max(s, c)", "c")),
	)
}

// rotten are bugs about a disk's damage on its way to another node.
func rotten() []Mutant {
	const storage, directory in = "storage", "storage/internal/directory"
	return append(foundBy(storage, "TestRotIsNotSent",
		bug("rot-is-sent", "D5, D10", "a checkpoint is sent with tables that have rotted",
			directory.replace("(Checkpoint) open(n)", "checkTable(f, p)", "error(nil)")),
	), foundBy(storage, "TestRotIsNotInstalled",
		bug("rot-is-installed", "D5, D10", "a checkpoint is taken in with tables that have rotted",
			directory.replace("checkReceived(f, p)", "checkTable(f, p)", "error(nil)")),
		bug("rot-is-pulled", "D5, D10", "a new member takes in tables that have rotted",
			directory.replace("(Seed) EndFile", "checkTable(fs, p)", "error(nil)")),
	)...)
}

// cached are bugs about the rows of machines that apply keeps in memory. A test of the store
// compares what stores read that keep all rows, few, or none.
func cached() []Mutant {
	const storage in = "storage"
	return foundBy(storage, "TestRecentRowsD11",
		bug("deleted-row-cached", "D11", "a row of a machine that was deleted stays in memory",
			storage.remove("(applyTx) keepWrites", "c.Forget()")),
		bug("refused-row-cached", "APP-3, D11", "what a machine writes is in memory before its command is applied",
			storage.after("(t Tx) Set(k, v)", "t.a.writes.Set()", "t.a.s.recent.Put(k, record.CloneValue(v))")),
		bug("replaced-row-cached", "D5",
			"the rows of machines in memory survive the store that a snapshot has replaced",
			storage.replace("(Received) install", "r = rowcache.New(b)", "_ = rowcache.New(b)")),
	)
}
