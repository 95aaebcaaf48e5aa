package raft

import (
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/raft/witness"
	"runlog/testbed/bubble"
)

// TestMeetsAfterInterruptedFoundingD3: a node whose founding was interrupted sets its term back and
// founds its group again. It greets others only after that: they remember a greeting, and a later
// start must not have less.
func TestMeetsAfterInterruptedFoundingD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		if err := Make(vfs.Default, b.dir); err != nil {
			t.Fatal(err)
		}
		stable, err := wal.OpenStable(vfs.Default, b.dir, b.fail)
		if err == nil {
			err = stable.SetTerm(1)
		}
		if err != nil {
			t.Fatal(err)
		}
		met := 0
		b.opts.Meet = func(w *witness.Witness, _ []Member, fresh bool) error {
			met++
			if g := w.Greeting(); g.Term != 1 || g.Index != 1 || fresh {
				t.Errorf("greets with %+v, fresh %v", g.Standing, fresh)
			}
			return nil
		}
		b.start()
		if met != 1 {
			t.Errorf("%d meetings", met)
		}
	})
}

// TestMeetsMembersOfTheLogD3: a node greets the members that only its log names before it takes
// part. A killed node's store may lack them: an older copy would lead without having asked those
// that remember more.
func TestMeetsMembersOfTheLogD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		b.stop()
		o := b.prepare("node")
		o.EnsureDefaults()
		n := newNode(o)
		if err := n.open(); err != nil {
			t.Fatal(err)
		}
		_, last, err := n.logBounds()
		if err != nil {
			t.Fatal(err)
		}
		both := hraft.Configuration{Servers: []hraft.Server{{ID: "node", Address: "node"}, {ID: "other", Address: "elsewhere"}}}
		err = n.logs.StoreLogs([]*hraft.Log{
			{Index: last + 1, Term: n.stable.Term(), Type: hraft.LogConfiguration, Data: hraft.EncodeConfiguration(both)},
			{Index: last + 2, Term: n.stable.Term(), Type: hraft.LogNoop},
		})
		if err := errors.Join(err, n.closeFiles(), o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		var named []Member
		b.opts.Meet = func(_ *witness.Witness, ahead []Member, _ bool) error {
			named = ahead
			return enough
		}
		if err := b.tryStart(); !errors.Is(err, enough) {
			t.Fatal(err)
		}
		if got := names(named); !slices.Equal(got, []string{"node", "other"}) {
			t.Errorf("greets %v", got)
		}
	})
}

// TestStandsWhileEntriesAreDroppedD3: while a leader makes a node drop the end of its log, the node
// does not seem to have no log.
func TestStandsWhileEntriesAreDroppedD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		o := b.prepare("node")
		o.EnsureDefaults()
		n := newNode(o)
		defer func() {
			if err := n.closeFiles(); err != nil {
				t.Error(err)
			}
			_ = o.Store.Close()
		}()
		if err := n.open(); err != nil {
			t.Fatal(err)
		}
		store := func(index uint64) error {
			return n.logs.StoreLog(&hraft.Log{Index: index, Term: 1, Type: hraft.LogNoop})
		}
		for i := range uint64(10) {
			if err := store(i + 1); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 300 {
				if err := store(11); err != nil {
					t.Error(err)
				}
				if err := n.logs.DeleteRange(11, 11); err != nil {
					t.Error(err)
				}
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			if now := n.stands(); now.Index < 10 || now.LastTerm != 1 {
				t.Errorf("the log seems to end at %+v", now)
				<-done
				return
			}
		}
	})
}
