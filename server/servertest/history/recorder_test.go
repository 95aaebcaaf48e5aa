package history

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"runlog/proto/contract"
)

// TestRecorderInABubble shows that clients record side by side in simulated time, that what has not
// returned is unknown, and that both checks end there and leave nothing behind.
func TestRecorderInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := NewRecorder(func() int64 { return time.Now().UnixNano() })
		var mu sync.Mutex
		var records []Record
		var clients sync.WaitGroup
		for c := range 5 {
			clients.Go(func() {
				key := fmt.Sprint("key ", c)
				op := Op{Client: fmt.Sprint("client ", c), Appends: []Append{{Run: "r", Events: []Event{{Key: key}}}}}
				ticket := rec.Call(op)
				time.Sleep(time.Duration(c) * time.Millisecond)
				mu.Lock()
				seq := uint64(len(records) + 1)
				stamp := time.Now().UnixNano() + int64(c)
				var chain contract.Digest
				if seq > 1 {
					chain = contract.Digest(records[seq-2].ChainDigest)
				}
				records = append(records, Record{
					Run: "r", RunSeq: seq, PersistedAt: stamp, EventID: key, Key: key, ChainDigest: Digest(contract.ChainDigest(chain, contract.Digest{}, seq, stamp)),
				})
				mu.Unlock()
				if c == 4 {
					return // Its answer is lost.
				}
				op.Appends[0].Outcome = Outcome{Status: Acknowledged}
				op.Appends[0].Results = []Result{{EventID: key, RunSeq: seq, PersistedAt: stamp}}
				_ = rec.History() // While others write.
				time.Sleep(time.Millisecond)
				rec.Return(ticket, op)
				rec.Mark("watcher "+fmt.Sprint(c), "n", "r", seq)
			})
		}
		clients.Wait()
		h := rec.History()
		if len(h.Ops) != 9 {
			t.Fatalf("%d ops, want 5 appends and 4 marks", len(h.Ops))
		}
		final := &Final{Node: "n", Records: records}
		r := Check(h, nil, final)
		if !r.OK() || r.Counts["appends acknowledged"] != 4 || r.Counts["appends unknown"] != 1 {
			t.Error(r)
		}
		if err := CrossCheck(h, final); err != nil {
			t.Error(err)
		}
	})
}

// TestRecorderKeepsTheCall shows that the answer of a call takes nothing from what was recorded
// before it, nor from histories that were taken.
func TestRecorderKeepsTheCall(t *testing.T) {
	now := int64(0)
	rec := NewRecorder(func() int64 { now++; return now })
	op := Op{
		Client: "c", Read: &Read{Run: "r", MinSeq: 3, LastSeq: 9, Outcome: Outcome{Status: Acknowledged}},
	}
	ticket := rec.Call(op)
	before := rec.History()
	op.Read.LastSeq = 5
	rec.Return(ticket, op)
	want := []Op{{Client: "c", Call: 1, Read: &Read{Run: "r", MinSeq: 3}}}
	if !reflect.DeepEqual(before.Ops, want) {
		t.Errorf("before: %+v, want %+v", &before.Ops[0], &want[0])
	}
	want = []Op{{Client: "c", Call: 1, Return: 2, Read: &Read{Run: "r", MinSeq: 3, LastSeq: 5, Outcome: Outcome{Status: Acknowledged}}}}
	if after := rec.History(); !reflect.DeepEqual(after.Ops, want) {
		t.Errorf("after: %+v, want %+v", &after.Ops[0], &want[0])
	}
}

// TestFailed shows which errors leave the outcome open.
func TestFailed(t *testing.T) {
	for reason, want := range map[contract.Reason]Status{
		contract.ReasonOutcomeUnknown: Unknown, contract.ReasonStorageFailed: Unknown, "SOMETHING_NEW": Unknown,
		contract.ReasonSequenceConflict: Refused, contract.ReasonNoLeader: Refused, contract.ReasonOverloaded: Refused,
	} {
		if got := Failed(reason); got != (Outcome{want, reason}) {
			t.Errorf("%s: %+v, want status %q", reason, got, want)
		}
	}
}
