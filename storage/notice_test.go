package storage_test

import (
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// noticer is an ender that also writes down each notice of a run, as a digit.
type noticer struct{ ender }

func (n noticer) Noticed(tx *storage.Tx, runID string, notice contract.Notice) error {
	if n.fault != nil {
		return n.fault
	}
	key := []byte(n.tables[0] + runID)
	row, err := tx.Get(key)
	tx.Set(key, append(row, '0'+byte(notice)))
	return err
}

// TestNoticesQUE12QUE10: a machine that asks for it learns of each new event that starts or cancels
// a run, in their order and before the end of the run, as a part of the same command: not of
// duplicates, of other events, of those that are no valid transition, or of commands that are
// refused.
func TestNoticesPRJ17QUE12QUE10(t *testing.T) {
	l := open(t, storage.Options{Machines: []storage.Machine{noticer{newEnder(62, "C")}, newEnder(60, "A")}})
	do := func(ops ...storage.Operation) error {
		t.Helper()
		c, err := storage.EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(c)
		o, err := l.Store.Apply(l.Applied().Index+1, 1, p.Seal(1))
		if err != nil {
			t.Fatal(err)
		}
		return o[0].Err
	}
	events := func(run string, events ...contract.Event) storage.Operation {
		t.Helper()
		op, err := storage.AppendOperation(&storage.Append{RunID: run, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	signal := func(run string, n uint32, payload string) contract.Event {
		e := endEvent(run, contract.SignalAccepted)
		e.SetAttempt(n)
		e.Payload = []byte(payload)
		return e
	}
	want := func(when, run, notices string) {
		t.Helper()
		row, err := readRow(l.Store, 62, "C"+run)
		if err != nil || string(row) != notices {
			t.Errorf("%s: the machine has learned %q, %v; want %q", when, row, err, notices)
		}
	}
	started, cancel := endEvent("a", contract.RunStarted), signal("a", 1, ` {"signalType":"PAUSE","signalType":"CANCEL"}`)
	_ = do(events("a", storagetest.Event("a", 0), signal("a", 2, `{"signalType":"PAUSE","x":{"signalType":"CANCEL"}}`)))
	want("other events", "a", "")
	if err := do(events("a", started), storage.Operation{Kind: 60, Data: []byte("refuse")}); err == nil {
		t.Fatal("the command was not refused")
	}
	want("a refused command", "a", "")
	_ = do(events("a", storagetest.Event("a", 1), started, cancel))
	want("both", "a", "12")
	_ = do(events("a", started, cancel, storagetest.Event("a", 2)))
	want("duplicates", "a", "12")
	_ = do(storage.Operation{Kind: 60, Data: []byte("a")}, events("a", endEvent("a", contract.RunCancelled), signal("a", 3, `{"signalType":"EMERGENCY_STOP"}`)))
	want("the end", "a", "122.")
	again := endEvent("b", contract.RunStarted)
	again.SetAttempt(2)
	_ = do(events("b", endEvent("b", contract.RunStarted), again, endEvent("b", contract.RunCancelled)))
	want("a second start", "b", "1")
	_ = do(events("c", endEvent("c", contract.RunCancelled), endEvent("c", contract.RunStarted)))
	want("a start behind the end", "c", "")
}
