package witness

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// directory is a node's directory with the part of a log that matters here.
type directory struct {
	files map[string][]byte // nil: damaged
	Standing
}

func newDirectory() *directory { return &directory{files: map[string][]byte{}} }

// Read is Files'.
func (d *directory) Read(name string) ([]byte, error) {
	body, there := d.files[name]
	if there && body == nil {
		return nil, errors.New("damaged")
	}
	return body, nil
}

// Replace is Files'.
func (d *directory) Replace(name string, body []byte) error {
	d.files[name] = body
	return nil
}

// copied returns a copy of the directory as it is now.
func (d *directory) copied() *directory {
	return &directory{files: maps.Clone(d.files), Standing: d.Standing}
}

type failer interface{ Fatalf(string, ...any) }

// open starts a node on the directory without a new incarnation.
func (d *directory) open(t failer, id, address string) *Witness {
	return Open(Options{Files: d, NodeID: id, Address: address,
		Standing: func() Standing { return d.Standing }, Logger: slog.New(slog.DiscardHandler)})
}

// start starts a node on the directory.
func (d *directory) start(t failer, id, address string) *Witness {
	w := d.open(t, id, address)
	if _, err := w.Begin(); err != nil {
		t.Fatalf("begin: %v", err)
	}
	return w
}

// greet lets one node greet another, and returns its judgement of itself.
func greet(t failer, from, to *Witness) error {
	sent := time.Now()
	a, _, err := to.Hear(from.nodeID, from.Greeting())
	if err != nil && !errors.Is(err, ErrTwoCopies) {
		t.Fatalf("hear: %v", err)
	}
	return errors.Join(from.Judge(a, sent, to.nodeID), err, from.JudgeBy(to.Greeting(), to.nodeID, []string{from.nodeID, to.nodeID}))
}

// TestOlderCopyD3 proves D3: a directory that was put back from an older copy is refused by every
// member that remembers more, also after the member's restart.
func TestOlderCopyD3(t *testing.T) {
	for name, tt := range map[string]struct {
		ack  func(w *Witness, d *directory)
		want bool
	}{
		"an entry that it acknowledged": {func(w *Witness, d *directory) {
			d.Index = 9
			w.Acknowledged("n3", 4, 9)
		}, true},
		"a term in which it has voted": {func(w *Witness, d *directory) {
			d.Term = 5
			w.Acknowledged("n3", 5, 0)
		}, true},
		"nothing": {func(*Witness, *directory) {}, false},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restarted ", restart), func(t *testing.T) {
				theirs, dir := newDirectory(), newDirectory()
				theirs.Standing = Standing{Term: 4, Index: 9, LastTerm: 4}
				dir.Standing = Standing{Term: 4, Index: 7, LastTerm: 4}
				witness := theirs.start(t, "n2", "two")
				w := dir.start(t, "n3", "three")
				if err := greet(t, w, witness); err != nil {
					t.Fatal(err)
				}
				older := dir.copied()
				tt.ack(witness, dir)
				if restart {
					if err := witness.Save(); err != nil {
						t.Fatal(err)
					}
					witness = theirs.start(t, "n2", "two")
				}
				if err := greet(t, older.start(t, "n3", "three"), witness); errors.Is(err, ErrOlderCopy) != tt.want {
					t.Errorf("the older copy is told %v", err)
				}
				if tt.want {
					if err := greet(t, dir.start(t, "n3", "three"), witness); err != nil {
						t.Errorf("the directory itself is told %v", err)
					}
				}
			})
		}
	}
}

// TestForkD3 proves D3: a copy from before the start of an incarnation that a member has met is
// refused, even if nothing was acknowledged since.
func TestForkD3(t *testing.T) {
	theirs, dir := newDirectory(), newDirectory()
	witness := theirs.start(t, "n2", "two")
	older := dir.copied()
	if err := greet(t, dir.start(t, "n3", "three"), witness); err != nil {
		t.Fatal(err)
	}
	if err := greet(t, older.start(t, "n3", "three"), witness); !errors.Is(err, ErrOlderCopy) {
		t.Errorf("the older copy is told %v", err)
	}
}

// TestTwoCopiesD3 proves that both of two nodes with copies of one directory stop, whether the copy
// was made before the start of the first or while it ran, and whether they meet each other or a
// third.
func TestTwoCopiesD3(t *testing.T) {
	for _, live := range []bool{false, true} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprint("live ", live, ", direct ", direct), fake(func(t *testing.T) {
				theirs, dir := newDirectory(), newDirectory()
				third := theirs.start(t, "n2", "two")
				was := dir.copied()
				first := dir.start(t, "n3", "three")
				if live {
					was = dir.copied()
				}
				if err := greet(t, first, third); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
				second := was.start(t, "n3", "elsewhere")
				var stopped [2]error
				for range 3 {
					for i, w := range []*Witness{second, first} {
						to := third
						if direct {
							to = []*Witness{first, second}[i]
						}
						time.Sleep(apart)
						stopped[i] = errors.Join(stopped[i], greet(t, w, to))
					}
				}
				if !errors.Is(stopped[0], ErrTwoCopies) || !errors.Is(stopped[1], ErrTwoCopies) {
					t.Errorf("the second is told %v, the first %v", stopped[0], stopped[1])
				}
			}))
		}
	}
}

// fake runs a test in fake time.
func fake(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// TestLateGreetings shows that greetings from before a restart accuse no good directory, even if
// the node has another address since. The network, or a paused member, has kept them.
func TestLateGreetings(t *testing.T) {
	for _, address := range []string{"three", "elsewhere"} {
		t.Run(address, fake(func(t *testing.T) {
			theirs, dir := newDirectory(), newDirectory()
			third := theirs.start(t, "n2", "two")
			late := dir.start(t, "n3", "three").Greeting()
			w := dir.start(t, "n3", address)
			for range 2 {
				time.Sleep(time.Millisecond)
				if err := greet(t, w, third); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if _, _, err := third.Hear("n3", late); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := greet(t, w, third); err != nil {
				t.Error(err)
			}
		}))
	}
}

// TestFirstStartAfterAnUpgrade shows that a directory continues whose last start was of a build
// without incarnations. A later leader has made that build drop entries that it had acknowledged,
// which it did not note; the new entries did not arrive.
func TestFirstStartAfterAnUpgrade(t *testing.T) {
	theirs, dir := newDirectory(), newDirectory()
	theirs.Standing = Standing{Term: 6, Index: 20, LastTerm: 5}
	third := theirs.start(t, "n2", "two")
	third.Acknowledged("n3", 5, 20)
	third.Acknowledged("n3", 6, 0)
	dir.Standing = Standing{Term: 6, Index: 17, LastTerm: 5}
	for range 2 {
		if err := greet(t, dir.start(t, "n3", "three"), third); err != nil {
			t.Error(err)
		}
	}
	// A copy from before what it has acknowledged is noticed nevertheless.
	older := newDirectory()
	older.Standing = Standing{Term: 5, Index: 17, LastTerm: 5}
	if err := greet(t, older.start(t, "n3", "three"), third); !errors.Is(err, ErrOlderCopy) {
		t.Errorf("the older copy is told %v", err)
	}
}

// TestToldByStrangersD3 proves D3 for a copy that does not know the members that remember it, from
// before they were added: their greetings tell. If it has led since, it is asked to keep what it
// has taken. Nodes that were lost before the node went on alone tell nothing.
func TestToldByStrangersD3(t *testing.T) {
	theirs, dir := newDirectory(), newDirectory()
	dir.Standing = Standing{Term: 2, Index: 7, LastTerm: 2}
	third := theirs.start(t, "n2", "two")
	dir.start(t, "n3", "three")
	older := dir.copied()
	if err := greet(t, dir.start(t, "n3", "three"), third); err != nil {
		t.Fatal(err)
	}
	third.Acknowledged("n3", 2, 9)

	w := older.start(t, "n3", "three")
	older.Standing = Standing{Term: 3, Index: 12, LastTerm: 3}
	if err := w.Led(3, "n3"); err != nil {
		t.Fatal(err)
	}
	alone, members := []string{"n3"}, []string{"n2", "n3"}
	err := w.JudgeBy(third.Greeting(), "n2", alone)
	if !errors.Is(err, ErrOlderCopy) || !strings.Contains(err.Error(), "salvage --from-entry 8") {
		t.Errorf("the older copy is told %v", err)
	}
	if err := w.GoAlone(13); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.JudgeBy(third.Greeting(), "n2", alone); err != nil {
			t.Errorf("a recovered node is told %v by one that was lost", err)
		}
		theirs.Standing = Standing{Term: 3, Index: 9, LastTerm: 3}
		if err := w.JudgeBy(third.Greeting(), "n2", members); !errors.Is(err, ErrOlderCopy) {
			t.Errorf("a recovered node is told %v by a member", err)
		}
		w = older.start(t, "n3", "three")
	}
}

// TestGoesOnBeyondRecall shows that an older copy that a later leader has given other entries
// continues: the member that remembers more must not stop the majority.
func TestGoesOnBeyondRecall(t *testing.T) {
	theirs, dir := newDirectory(), newDirectory()
	theirs.Standing = Standing{Term: 3, Index: 17, LastTerm: 3}
	holder := theirs.start(t, "n2", "two")
	older := dir.copied()
	dir.Standing = Standing{Term: 3, Index: 15, LastTerm: 3}
	if err := greet(t, dir.start(t, "n3", "three"), holder); err != nil {
		t.Fatal(err)
	}
	holder.Acknowledged("n3", 3, 15)
	older.Standing = Standing{Term: 4, Index: 12, LastTerm: 4}
	w := older.start(t, "n3", "three")
	for range 2 {
		if err := greet(t, w, holder); err != nil {
			t.Error(err)
		}
	}
}

// TestGoodDirectoryIsNeverRefused proves that what Raft allows accuses no directory: entries that
// later leaders overrule, restarts at any instant, lost memories, and answers that are late.
func TestGoodDirectoryIsNeverRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theirs, dir := newDirectory(), newDirectory()
		theirs.Standing = Standing{Term: 100, Index: 100, LastTerm: 100}
		third, w := theirs.start(t, "n2", "two"), dir.start(t, "n3", "three")
		terms := []uint64{0} // of the log's entries, from index 1
		set := func() { dir.Index, dir.LastTerm = uint64(len(terms)-1), terms[len(terms)-1] }
		var late []Answer
		var sent []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1: // the leader of the term sends an entry
				if dir.Term > 0 {
					terms = append(terms, dir.Term)
					set()
					third.Acknowledged("n3", dir.Term, dir.Index)
				}
			case 2: // a vote
				dir.Term += uint64(rapid.IntRange(1, 3).Draw(t, "terms"))
				third.Acknowledged("n3", dir.Term, 0)
			case 3: // a later leader overrules the end of the log; its entries come later, or never
				if len(terms) > 1 && terms[len(terms)-1] < dir.Term {
					keep := rapid.IntRange(1, len(terms)-1).Draw(t, "keep")
					if err := w.Overrule(dir.Term); err != nil {
						t.Fatalf("%v", err)
					}
					terms = terms[:keep]
					set()
				}
			case 4:
				w = dir.start(t, "n3", "three")
				late, sent = nil, nil
			case 5:
				if rapid.Bool().Draw(t, "saved") {
					if err := third.Save(); err != nil {
						t.Fatalf("%v", err)
					}
				}
				third = theirs.start(t, "n2", "two")
			case 6:
				at := time.Now()
				a, _, err := third.Hear("n3", w.Greeting())
				if err != nil {
					t.Fatalf("%v", err)
				}
				late, sent = append(late, a), append(sent, at)
			case 7:
				for i, a := range late {
					if err := w.Judge(a, sent[i], "n2"); err != nil {
						t.Fatalf("a good directory is told %v", err)
					}
				}
			}
			if err := greet(t, w, third); err != nil {
				t.Fatalf("a good directory is told %v", err)
			}
		}
	})
}

// TestMemoryDamaged shows that a damaged memory is dropped and damaged incarnations are refused.
func TestMemoryDamaged(t *testing.T) {
	dir := newDirectory()
	w := dir.start(t, "n2", "two")
	w.Acknowledged("n3", 4, 9)
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	dir.files[memoryFile] = nil
	if w := dir.start(t, "n2", "two"); len(w.members) != 0 {
		t.Errorf("the damaged memory has %d members", len(w.members))
	}
	dir.files[selfFile] = nil
	if w := dir.open(t, "n2", "two"); w.Lost() == nil {
		t.Error("damaged incarnations are read")
	}
}

// TestTwoLeadersD3 proves that a second leader of one term is noticed, also after a restart.
func TestTwoLeadersD3(t *testing.T) {
	dir := newDirectory()
	w := dir.start(t, "n2", "two")
	for _, led := range []Leader{{4, "n1"}, {4, "n1"}, {3, "n3"}} {
		if err := w.Led(led.Term, led.ID); err != nil {
			t.Errorf("%+v: %v", led, err)
		}
	}
	for range 2 {
		if err := w.Led(4, "n3"); !errors.Is(err, ErrTwoLeaders) {
			t.Errorf("a second leader is answered with %v", err)
		}
		w = dir.start(t, "n2", "two")
	}
	if err := w.Led(5, "n3"); err != nil {
		t.Errorf("the next term: %v", err)
	}
}

// TestCommonD3: a salvage begins behind what members of each majority had in earlier terms.
func TestCommonD3(t *testing.T) {
	at := func(logTerm, index uint64) Recollection {
		return Recollection{Term: logTerm, LogTerm: logTerm, Index: index}
	}
	for name, c := range map[string]struct {
		before map[string]Recollection
		want   uint64
	}{
		"alone":                          {nil, 0},
		"both in earlier terms":          {map[string]Recollection{"b": at(3, 9), "c": at(4, 7)}, 7},
		"one in the term":                {map[string]Recollection{"b": at(3, 9), "c": at(5, 12)}, 9},
		"one in a later term":            {map[string]Recollection{"b": at(3, 9), "c": at(6, 2)}, 9},
		"both in the term":               {map[string]Recollection{"b": at(5, 9), "c": at(5, 12)}, 0},
		"one never met":                  {map[string]Recollection{"b": {}, "c": at(4, 7)}, 0},
		"two of four in the term":        {map[string]Recollection{"b": at(3, 9), "c": at(4, 8), "d": at(5, 12), "e": at(5, 12)}, 8},
		"three of four, a majority of 5": {map[string]Recollection{"b": at(3, 9), "c": at(5, 8), "d": at(5, 12), "e": at(5, 12)}, 0},
	} {
		w := Witness{before: c.before}
		if got := w.Common(slices.Collect(maps.Keys(c.before)), 5); got != c.want {
			t.Errorf("%s: common is %d, want %d", name, got, c.want)
		}
	}
}
