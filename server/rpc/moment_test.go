package rpc

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestParseMomentTR7: the three forms of a moment, and texts that are none of them.
func TestParseMomentTR7(t *testing.T) {
	in := storage.Incarnation{1}
	at := time.Date(2026, 2, 11, 10, 30, 0, 125e6, time.UTC).UnixNano()
	for text, want := range map[string]Moment{
		"":                              {Kind: MomentNow, At: projector.Always},
		"0":                             {Kind: MomentSeq, At: projector.AsOfSeq(0)},
		"2026":                          {Kind: MomentSeq, At: projector.AsOfSeq(2026)},
		"18446744073709551615":          {Kind: MomentSeq, At: projector.AsOfSeq(1<<64 - 1)},
		"2026-02-11T10:30:00.125Z":      {Kind: MomentTime, At: projector.AsOf{Seq: 1<<64 - 1, Time: at, Position: 1<<64 - 1}},
		"2026-02-11T11:30:00.125+01:00": {Kind: MomentTime, At: projector.AsOf{Seq: 1<<64 - 1, Time: at, Position: 1<<64 - 1}},
		FormatPosition(in, 7):           {Kind: MomentPosition, At: projector.AsOf{Seq: 1<<64 - 1, Time: 1<<63 - 1, Position: 7}},
	} {
		want.Field = "from"
		if m, err := ParseMoment("from", text, in); err != nil || m != want {
			t.Errorf("%q is %+v, %v; want %+v", text, m, err, want)
		}
	}
	for text, want := range map[string]string{
		"now": "is no moment", "-1": "is no moment", "+1": "is no moment", "01": "is no moment", "1.0": "is no moment", "1\n": "is no moment",
		"18446744073709551616": "is no moment", "2026-02-11": "is no moment", "2026-02-11T10:30:00": "is no moment", "2026-02-30T10:30:00Z": "is no moment",
		"2016-12-31T23:59:60Z": "is no moment", "1969-12-31T23:59:59Z": "between 1970 and 2262", "2262-04-12T00:00:00Z": "between 1970 and 2262",
		"0100000000000000-07": "is not a position", "0100000000000000-": "is not a position",
		FormatPosition(storage.Incarnation{2}, 7): "was given by incarnation",
	} {
		_, err := ParseMoment("from", text, in)
		e, ok := errors.AsType[*contract.Error](err)
		if !ok || !strings.Contains(e.Message, want) || !strings.HasPrefix(e.Message, "from ") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// late is a node that reaches each position as the time to wait ends.
type late struct {
	MomentNode
	store *storage.Store
}

func (n late) Store() *storage.Store                         { return n.store }
func (n late) Await(context.Context, storage.Position) error { return nil }

func (n late) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Time{})
}

// TestReachedAtTheLastMomentTR7: a position that was reached is answered, also if the time to wait
// has ended meanwhile.
func TestReachedAtTheLastMomentTR7(t *testing.T) {
	local := openLocal(t)
	m := Moment{Kind: MomentPosition, Field: "asOfPosition", At: projector.Always}
	applied := local.Store.Applied()
	m.At.Position = applied.Position() + 1
	if err := m.Reach(t.Context(), late{store: local.Store}, runlogv1.Consistency_LOCAL, time.Now); err != nil {
		t.Error(err)
	}
}

// slow is a follower of a leader whose clock is behind, and which so does not close a time.
type slow struct{ late }

func (n slow) CloseThrough(_ context.Context, at int64) (storage.Position, int64, error) {
	applied := n.store.Applied()
	return applied.Position(), at, nil
}

// TestTimeOfTheLeaderTR7READ4: a time that the leader has not closed is in the future, also for a
// node whose clock has passed it.
func TestTimeOfTheLeaderTR7READ4(t *testing.T) {
	local := openLocal(t)
	at := time.Now().Add(time.Minute)
	m := momentOfTime("asOfTime", at.UnixNano())
	err := m.Reach(t.Context(), slow{late{store: local.Store}}, runlogv1.Consistency_LINEARIZABLE, func() time.Time { return at.Add(time.Hour) })
	if e, ok := errors.AsType[*contract.Error](err); !ok || e.Reason != contract.ReasonInvalidArgumentField || !strings.Contains(e.Message, "is in the future") {
		t.Errorf("a time that is not closed: %v", err)
	}
}

func openLocal(t *testing.T) *storagetest.Local {
	t.Helper()
	local, err := storagetest.Open(storage.Options{Dir: "store", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	return local
}

// FuzzMoment parses any text as a moment (TR-7). It is of one kind at most, and what it means has
// one spelling where it is a runSeq or a position.
func FuzzMoment(f *testing.F) {
	in := storage.Incarnation{1}
	for _, text := range []string{"", "0", "12", "2026-02-11T10:30:00Z", "2026-02-11t10:30:00.5+23:59", FormatPosition(in, 48211), "0200000000000000-1", "é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMoment("to", text, in)
		if err != nil {
			if e, ok := errors.AsType[*contract.Error](err); !ok || !strings.HasPrefix(e.Message, "to ") || e.Reason != contract.ReasonInvalidArgumentField && e.Reason != contract.ReasonResumeTokenInvalid {
				t.Fatalf("%q: %v names no field and no remedy", text, err)
			}
			return
		}
		again := ""
		switch m.Kind {
		case MomentNow:
		case MomentSeq:
			again = strconv.FormatUint(m.At.Seq, 10)
		case MomentPosition:
			again = FormatPosition(in, m.At.Position)
		case MomentTime:
			if again = text; m.At.Time < 0 {
				t.Fatalf("%q is before 1970: %d", text, m.At.Time)
			}
		}
		if again != text {
			t.Fatalf("%q and %q are one moment", text, again)
		}
		open := projector.Always
		for _, other := range []struct {
			of   MomentKind
			same bool
		}{
			{MomentSeq, m.At.Seq == open.Seq}, {MomentTime, m.At.Time == open.Time}, {MomentPosition, m.At.Position == open.Position},
		} {
			if other.of != m.Kind && !other.same {
				t.Fatalf("%q bounds also the kind %d: %+v", text, other.of, m.At)
			}
		}
	})
}
