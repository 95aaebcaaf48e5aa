package monitor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestFollowsTR5: a log that only grows is verified in rounds of any size, over rotations of the
// key and new origins, by a monitor that keeps nothing but its checkpoint, and by one that is shown
// one tenant alone.
func TestFollowsTR5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScripted(t)
		tenant := newScripted(t)
		all, one := s.monitor(true), tenant.monitor(false)
		verified, linked := uint64(0), uint64(0)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "runs") {
				run := rapid.IntRange(0, 3).Draw(t, "run")
				s.add("abcd"[run:run+1], "xy"[run%2:run%2+1], rapid.IntRange(1, 4).Draw(t, "records"))
			}
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0:
				s.rotate()
			case 1:
				s.incarnation[0]++
			case 2: // It starts again, with its state.
				kept := ""
				if k := all.Kept(); k != nil {
					kept = k.Note
				}
				var err error
				if all, err = New(Options{Source: s, Keys: []string{s.keys[0].PublicKey}, Whole: true, Kept: kept}); err != nil {
					t.Fatal(err)
				}
			}
			s.sign()
			*tenant = *s
			tenant.tenant = "x"
			round, err := next(all)
			if err != nil {
				t.Fatal(err)
			}
			if round != nil {
				verified, linked = verified+round.Records, linked+round.Linked
			}
			if verified != uint64(len(s.entries)) || linked > verified || int(all.Kept().Size) != len(s.entries) {
				t.Fatalf("%d of %d records are verified, %d linked", verified, len(s.entries), linked)
			}
			if _, err := next(one); err != nil {
				t.Fatal(err)
			}
			if err := grew(all, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// lies are what a cluster can do to a log that a monitor has verified up to record 12 of 20. It
// signs what it does.
var lies = map[string]func(s *scripted){
	"payload":   func(s *scripted) { s.entries[3].record.Payload = []byte(`{"a": 2}`) },
	"time":      func(s *scripted) { s.entries[3].record.PersistedAt++ },
	"author":    func(s *scripted) { s.entries[3].record.AppendedBy.Name = "other" },
	"order":     func(s *scripted) { s.entries[3], s.entries[4] = s.entries[4], s.entries[3] },
	"removal":   func(s *scripted) { s.entries = slices.Delete(s.entries, 3, 4) },
	"insertion": func(s *scripted) { s.entries = slices.Insert(s.entries, 3, s.entries[5]) },
	"a run": func(s *scripted) {
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.record.RunID == "b" })
	},
	"the end":      func(s *scripted) { s.entries = s.entries[:5] },
	"everything":   func(s *scripted) { s.entries = nil; s.add("z", "z", 20) },
	"under a name": func(s *scripted) { s.incarnation[0]++; s.entries[3].record.StepID = "other" },
}

// TestForgerTR5: each change of a record that the monitor has verified contradicts the checkpoint
// that it keeps, whatever hashes the cluster gives. It finds it again in each later round.
func TestForgerTR5(t *testing.T) {
	for what, lie := range lies {
		s := newScripted(t)
		for range 3 {
			s.add("a", "x", 2)
			s.add("b", "y", 2)
		}
		s.sign()
		m := s.monitor(true)
		if err := grew(m, 12); err != nil {
			t.Fatal(err)
		}
		before := s.note
		s.add("a", "x", 8)
		honest := *s
		honest.entries = slices.Clone(s.entries)
		honest.sign()
		lie(s)
		s.sign()
		for which, hashes := range map[string]func(earlier, later uint64) []tlog.Hash{
			"its own": nil,
			"the honest": func(earlier, later uint64) []tlog.Hash {
				h, err := proof.ProveConsistency(int64(earlier), honest.size(), &honest)
				if err != nil {
					t.Fatal(err)
				}
				return h
			},
			"no": func(uint64, uint64) []tlog.Hash { return nil },
		} {
			s.consistency = hashes
			_, err := next(m)
			var found *Contradiction
			if !errors.As(err, &found) || !errors.Is(err, proof.ErrContradiction) || found.Earlier != before || found.Later != s.note || !Fault(err) {
				t.Errorf("%s, with %s hashes: %v", what, which, err)
			}
			if m.Kept().Note != before {
				t.Errorf("%s: another checkpoint is kept", what)
			}
		}
		// The honest log still continues the checkpoint that it keeps.
		*s = honest
		if err := grew(m, 8); err != nil {
			t.Errorf("%s: afterwards %v", what, err)
		}
	}
}

func (s *scripted) size() int64 { return int64(len(s.entries)) }

// TestShownOtherRecordsTR5: records that are shown otherwise than they were signed, left out, or
// shown twice, are found, whichever part of an answer is changed.
func TestShownOtherRecordsTR5(t *testing.T) {
	each := func(change func(e *runlogv1.EventRecord)) func(*runlogv1.ExportEventsResponse) {
		return func(m *runlogv1.ExportEventsResponse) {
			if len(m.Events) > 1 {
				change(m.Events[1])
			}
		}
	}
	some := func(change func(p *runlogv1.RecordPlaces)) func(*runlogv1.ExportEventsResponse) {
		return func(m *runlogv1.ExportEventsResponse) {
			if len(m.Events) > 1 {
				change(m.Places)
			}
		}
	}
	drop := func(m *runlogv1.ExportEventsResponse) {
		if p := m.Places; len(m.Events) > 1 {
			m.Events = slices.Delete(m.Events, 1, 2)
			p.Indexes, p.Positions = slices.Delete(p.Indexes, 1, 2), slices.Delete(p.Positions, 1, 2)
			p.Offsets, p.Previous = slices.Delete(p.Offsets, 1, 2), slices.Delete(p.Previous, 32, 64)
		}
	}
	changes := map[string]func(*runlogv1.ExportEventsResponse){
		"payload": each(func(e *runlogv1.EventRecord) {
			e.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{}`)}
		}),
		"type":               each(func(e *runlogv1.EventRecord) { e.EventType = "StepFailed" }),
		"tenant":             each(func(e *runlogv1.EventRecord) { e.TenantId = "z" }),
		"time":               each(func(e *runlogv1.EventRecord) { e.PersistedAt.Nanos++ }),
		"author":             each(func(e *runlogv1.EventRecord) { e.AppendedBy = new("other") }),
		"salt":               each(func(e *runlogv1.EventRecord) { e.PayloadSalt = strings.Repeat("a", 32) }),
		"run":                each(func(e *runlogv1.EventRecord) { e.RunId = "other" }),
		"runSeq":             each(func(e *runlogv1.EventRecord) { e.RunSeq += 100 }),
		"not a record":       each(func(e *runlogv1.EventRecord) { e.EventId = "x" }),
		"position":           some(func(p *runlogv1.RecordPlaces) { p.Positions[1]++ }),
		"offset":             some(func(p *runlogv1.RecordPlaces) { p.Offsets[1]++ }),
		"index":              some(func(p *runlogv1.RecordPlaces) { p.Indexes[len(p.Indexes)-1] += 50 }),
		"previous":           some(func(p *runlogv1.RecordPlaces) { p.Previous[33] ^= 1 }),
		"hashes":             some(func(p *runlogv1.RecordPlaces) { p.Hashes = append(p.Hashes, make([]byte, 32)...) }),
		"half a hash":        some(func(p *runlogv1.RecordPlaces) { p.Hashes = append(p.Hashes, 1) }),
		"no places":          func(m *runlogv1.ExportEventsResponse) { m.Places = nil },
		"fewer places":       some(func(p *runlogv1.RecordPlaces) { p.Indexes = p.Indexes[1:] }),
		"fewer positions":    some(func(p *runlogv1.RecordPlaces) { p.Positions = p.Positions[1:] }),
		"no previous":        some(func(p *runlogv1.RecordPlaces) { p.Previous = nil }),
		"one is left out":    drop,
		"all are left out":   func(m *runlogv1.ExportEventsResponse) { m.Events, m.Places = nil, &runlogv1.RecordPlaces{} },
		"two change places":  func(m *runlogv1.ExportEventsResponse) { slices.Reverse(m.Events) },
		"a message is twice": func(m *runlogv1.ExportEventsResponse) { m.Events = append(m.Events, m.Events...) },
	}
	for what, change := range changes {
		s := newScripted(t)
		s.add("a", "x", 3)
		s.add("b", "y", 3)
		s.sign()
		m := s.monitor(true)
		s.change = change
		if _, err := next(m); !errors.Is(err, ErrRecords) || !Fault(err) {
			t.Errorf("%s: %v", what, err)
		}
		if m.Kept() != nil {
			t.Errorf("%s: a checkpoint is kept", what)
		}
		s.change = nil
		if err := grew(m, 6); err != nil {
			t.Errorf("%s: afterwards %v", what, err)
		}
	}
	// A caller that is shown some tenants alone cannot tell that a record is left out.
	s := newScripted(t)
	s.add("a", "x", 3)
	s.add("b", "y", 3)
	s.sign()
	s.change = func(m *runlogv1.ExportEventsResponse) { m.Events, m.Places = nil, &runlogv1.RecordPlaces{} }
	if err := grew(s.monitor(false), 0); err != nil {
		t.Errorf("a tenant's monitor: %v", err)
	}
}

// TestSignaturesTR5: a checkpoint that no trusted key has signed is not verified, and a source that
// does not answer says nothing about the log.
func TestSignaturesTR5(t *testing.T) {
	s := newScripted(t)
	if err := grew(s.monitor(true), 0); err != nil {
		t.Errorf("a log without a checkpoint: %v", err)
	}
	s.add("a", "x", 3)
	s.sign()
	m := s.monitor(true)
	stranger, err := proof.NewSigner(cluster, [32]byte{99})
	if err != nil {
		t.Fatal(err)
	}
	s.signers = append(s.signers, stranger)
	s.sign()
	if _, err := next(m); !errors.Is(err, proof.ErrUnknownKey) {
		t.Errorf("a stranger's key: %v", err)
	}
	s.keys = append(s.keys, proof.Key{PublicKey: stranger.PublicKey()})
	if _, err := next(m); !errors.Is(err, proof.ErrUnknownKey) {
		t.Errorf("a key that none endorses: %v", err)
	}
	s.signers, s.keys = s.signers[:1], s.keys[:1]
	s.sign()
	s.note = strings.Replace(s.note, "runs 1", "runs 2", 1)
	if _, err := next(m); !errors.Is(err, proof.ErrSignature) || !Fault(err) {
		t.Errorf("a changed checkpoint: %v", err)
	}
	s.failed = os.ErrDeadlineExceeded
	if _, err := next(m); !errors.Is(err, os.ErrDeadlineExceeded) || Fault(err) {
		t.Errorf("no answer: %v", err)
	}
	if _, err := New(Options{Source: s, Kept: "x"}); !errors.Is(err, proof.ErrNote) {
		t.Errorf("a damaged kept checkpoint: %v", err)
	}
}

// TestStateTR5: a state is read as it was written, replaces the one before as a whole, and is
// refused if a byte of it was changed.
func TestStateTR5(t *testing.T) {
	s := newScripted(t)
	s.add("a", "x", 3)
	s.sign()
	path := filepath.Join(t.TempDir(), "state")
	if got, err := ReadState(path); err != nil || got != (State{}) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	for _, records := range []uint64{3, 7} {
		want := State{Checkpoint: s.note, Records: records}
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadState(path); err != nil || got != want {
			t.Errorf("%+v, want %+v: %v", got, want, err)
		}
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(names) != 1 {
		t.Errorf("files %v, %v", names, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseState(text[:len(text)-1]); !errors.Is(err, ErrState) {
		t.Errorf("a cut state: %v", err)
	}
	if err := (State{Checkpoint: s.note}).Write(filepath.Join(path, "none")); err == nil {
		t.Error("a state is written where it cannot be")
	}
}

// FuzzParseStateTR5: a state is written one way only.
func FuzzParseStateTR5(f *testing.F) {
	s := newScripted(f)
	s.add("a", "x", 3)
	s.sign()
	text, err := State{Checkpoint: s.note, Records: 3}.text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":"runlog monitor state 1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		state, err := parseState(text)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := state.text(); err != nil || string(again) != string(text) {
			t.Errorf("%q is read as %q, %v", text, again, err)
		}
	})
}
