package proof

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// world is a log of some runs, which an operator with the data and the signing key can rewrite.
type world struct {
	t     *testing.T
	runs  [][]Record
	order []int // the run of each record, in commit order
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	for i := range 4 {
		runID := string(rune('a'+i)) + "-run"
		w.runs = append(w.runs, testRecords(runID, 6))
	}
	for seq := range 6 {
		for run := range w.runs {
			w.order = append(w.order, run)
			w.runs[run][seq].PersistedAt = int64(len(w.order)) * 1e9 // in commit order
			w.runs[run][seq].EventID[1] = byte(run)
		}
	}
	return w
}

// signed is what the holder of the key shows of a world.
type signed struct {
	log        *testLog
	places     [][]Place
	checkpoint Checkpoint
	note       string
}

// sign makes the tree of the first records and signs it.
func (w *world) sign(by *Signer, records int) *signed {
	w.t.Helper()
	s := &signed{log: &testLog{}, places: make([][]Place, len(w.runs))}
	chains := make([]contract.Digest, len(w.runs))
	next := make([]int, len(w.runs))
	var last int64
	for _, run := range w.order[:records] {
		r := &w.runs[run][next[run]]
		next[run]++
		chains[run] = r.Chain(chains[run])
		at := Place{Index: s.log.size, Position: uint64(10 + s.log.size)}
		s.places[run] = append(s.places[run], at)
		s.log.add(w.t, contract.Leaf{Chain: chains[run], Position: at.Position, PersistedAt: r.PersistedAt})
		last = r.PersistedAt
	}
	s.checkpoint = Checkpoint{
		Cluster: testCluster, Size: uint64(s.log.size), Root: s.log.root(w.t, s.log.size), Position: uint64(10 + s.log.size),
		CompleteThrough: last, Runs: uint64(len(w.runs)),
	}
	var heads []RunHead
	for run := range w.runs {
		heads = append(heads, testHead(w.runs[run][0].RunID, w.runs[run][:next[run]]))
	}
	s.checkpoint.Heads, _ = testTree(w.t, heads, 0)
	var err error
	if s.note, err = by.SignCheckpoint(&s.checkpoint); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// prove writes the proof of the first run, with the hashes of the caller as proof of consistency.
func (w *world) prove(s *signed, by *Signer, since string, consistency []tlog.Hash) (string, error) {
	w.t.Helper()
	var heads []RunHead
	for run := range w.runs {
		heads = append(heads, testHead(w.runs[run][0].RunID, w.runs[run][:len(s.places[run])]))
	}
	_, path := testTree(w.t, heads, 0)
	p := &RunProof{Head: heads[0], Path: path, Checkpoint: s.note, Keys: []Key{{PublicKey: by.PublicKey()}}, Since: since, Consistency: consistency}
	var out bytes.Buffer
	writer, err := NewRunWriter(&out, p, &s.checkpoint)
	if err != nil {
		w.t.Fatal(err)
	}
	var indexes []int64
	for i, at := range s.places[0] {
		if err := writer.Add(&w.runs[0][i], at); err != nil {
			return "", err
		}
		indexes = append(indexes, at.Index)
	}
	hashes, err := ProveInclusion(s.log.size, indexes, s.log)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := writer.Included(hashes); err != nil {
		w.t.Fatal(err)
	}
	if err := writer.End(); err != nil {
		w.t.Fatal(err)
	}
	return out.String(), nil
}

// forgeries are what an operator with the signing key can do to a log. Each leaves a log that is
// sound in itself.
var forgeries = map[string]func(w *world){
	"payload": func(w *world) { w.runs[0][1].Payload = []byte(`{"paid":true}`) },
	"reason":  func(w *world) { w.runs[2][0].Payload = []byte(`{"reason":"another"}`) },
	"time":    func(w *world) { w.runs[0][2].PersistedAt++ },
	"emitted": func(w *world) { w.runs[1][1].EmittedAt++ },
	"author":  func(w *world) { w.runs[0][1].AppendedBy = contract.Author{Name: "somebody else"} },
	"salt":    func(w *world) { w.runs[3][1].PayloadSalt[0] ^= 1 },
	"order": func(w *world) { // of two records of different runs
		w.order[4], w.order[5] = w.order[5], w.order[4]
		a, b := &w.runs[0][1], &w.runs[1][1]
		a.PersistedAt, b.PersistedAt = b.PersistedAt, a.PersistedAt
	},
	"order in a run": func(w *world) {
		r := w.runs[0]
		r[1], r[2] = r[2], r[1]
		r[1].RunSeq, r[2].RunSeq = r[2].RunSeq, r[1].RunSeq
		r[1].PersistedAt, r[2].PersistedAt = r[2].PersistedAt, r[1].PersistedAt
	},
	"removal": func(w *world) { w.remove(0, 2) },
	"insertion": func(w *world) {
		r := w.runs[0][2]
		r.EventID[0] ^= 0x40
		w.runs[0] = slices.Insert(w.runs[0], 3, r)
		for i := range w.runs[0] {
			w.runs[0][i].RunSeq = uint64(i + 1)
		}
		w.order = slices.Insert(w.order, 9, 0)
	},
	"a run is removed": func(w *world) {
		w.runs = slices.Delete(w.runs, 3, 4)
		w.order = slices.DeleteFunc(w.order, func(run int) bool { return run == 3 })
	},
	"a run is added": func(w *world) {
		r := testRecords("e-run", 1)
		r[0].PersistedAt = 1e9
		w.runs = append(w.runs, r)
		w.order = slices.Insert(w.order, 1, len(w.runs)-1)
	},
	"a fork of a run": func(w *world) { // its first records under another name, where a run was
		fork := slices.Clone(w.runs[0][:3])
		for i := range fork {
			fork[i].RunID, fork[i].PersistedAt = "b-run", w.runs[1][i].PersistedAt
		}
		copy(w.runs[1], fork)
	},
	"another scope": func(w *world) {
		for i := range w.runs[1] {
			if w.runs[1][i].TenantID != "" {
				w.runs[1][i].TenantID = "other"
			}
		}
	},
}

func (w *world) remove(run, at int) {
	w.runs[run] = slices.Delete(w.runs[run], at, at+1)
	for i := range w.runs[run] {
		w.runs[run][i].RunSeq = uint64(i + 1)
	}
	seen := 0
	for i, of := range w.order {
		if of != run {
			continue
		}
		if seen == at {
			w.order = slices.Delete(w.order, i, i+1)
			return
		}
		seen++
	}
}

// TestForgerTR3TR6: an operator with the signing key rewrites an old part of the log, of which an
// auditor has kept a checkpoint, computes all chains and trees again, and signs on. Whatever hashes
// the operator gives, the new log is not shown to continue the kept checkpoint. Without it, the
// same forgery is not found: every check passes, and says no more than that.
func TestForgerTR3TR6(t *testing.T) {
	key := testSigner(t, testCluster, 1)
	const then = 16
	honest := newWorld(t)
	kept := honest.sign(key, then)
	now := honest.sign(key, len(honest.order))
	right, err := ProveConsistency(then, now.log.size, now.log)
	if err != nil {
		t.Fatal(err)
	}
	text, err := honest.prove(now, key, kept.note, right)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := VerifyRunFile(bytes.NewReader([]byte(text)), key.PublicKey()); err != nil || report.Since.Size != then {
		t.Fatalf("an honest log: %+v, %v", report, err)
	}
	for what, forge := range forgeries {
		forged := newWorld(t)
		forge(forged)
		after := forged.sign(key, len(forged.order))
		own, err := ProveConsistency(then, after.log.size, after.log)
		if err != nil {
			t.Fatal(err)
		}
		for which, hashes := range map[string][]tlog.Hash{"its own": own, "the honest": right, "no": nil} {
			if err := CheckConsistency(&kept.checkpoint, &after.checkpoint, hashes); !errors.Is(err, ErrContradiction) {
				t.Errorf("%s, with %s hashes: %v", what, which, err)
			}
			text, err := forged.prove(after, key, kept.note, hashes)
			if err == nil {
				_, err = VerifyRunFile(bytes.NewReader([]byte(text)), key.PublicKey())
			}
			if !errors.Is(err, ErrContradiction) {
				t.Errorf("%s, a proof of a run with %s hashes: %v", what, which, err)
			}
		}
		// A log of the old size, which the forger signs too, is evidence for everybody.
		again := forged.sign(key, then)
		if _, err := VerifyCheckpoints([]string{kept.note, again.note}, key.PublicKey()); !errors.Is(err, ErrContradiction) {
			t.Errorf("%s: the two checkpoints of %d records: %v", what, then, err)
		}
		text, err := forged.prove(after, key, "", nil)
		if err != nil {
			t.Fatalf("%s: the forger's log is not sound in itself: %v", what, err)
		}
		if report, err := VerifyRunFile(bytes.NewReader([]byte(text)), key.PublicKey()); err != nil || report.Since != nil {
			t.Errorf("%s is found without the kept checkpoint: %v", what, err)
		}
	}
}
