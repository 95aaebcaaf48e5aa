package storage_test

import (
	"errors"
	"strings"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// ender is a stub that writes down which runs have ended: one row a run, with one more byte a call.
type ender struct {
	stub
	fault error
}

func (e ender) Ended(tx *storage.Tx, runID string) error {
	if e.fault != nil {
		return e.fault
	}
	run, err := tx.Run(runID)
	if err != nil || run.Fence == 0 {
		return errors.Join(err, errors.New("a run without a fence"))
	}
	key := []byte(e.tables[0] + runID)
	row, err := tx.Get(key)
	tx.Set(key, append(row, '.'))
	return err
}

// Unsettled writes an exclamation mark into the row.
func (e ender) Unsettled(tx *storage.Tx, runID string) error {
	key := []byte(e.tables[0] + runID)
	row, err := tx.Get(key)
	tx.Set(key, append(row, '!'))
	return err
}

// newEnder returns an ender that sets fence 1 of a run that its operation names, or refuses.
func newEnder(kind uint32, table string) ender {
	return ender{stub: stub{kind: kind, tables: []string{table}, apply: func(tx *storage.Tx, op []byte) ([]byte, error, error) {
		if string(op) == "refuse" {
			return nil, errors.New("refused"), nil
		}
		if name, found := strings.CutPrefix(string(op), "settle "); found {
			run, err := tx.Run(name)
			if err != nil {
				return nil, nil, err
			}
			refused, err := tx.Settle(name, run.LastSeq, contract.StatusCompleted)
			return nil, refused, err
		}
		refused, err := tx.SetFence(string(op), 1)
		return nil, refused, err
	}}}
}

func endEvent(run, eventType string) contract.Event {
	e := storagetest.Event(run, 0)
	e.Type, e.StepID = eventType, ""
	e.IdempotencyKey = contract.DeriveKey(contract.Line2, run, "", 1, 1, eventType, e.PlanID, e.PlanVersion)
	return e
}

// again is the event of a later attempt.
func again(run, eventType string, attempt uint32) contract.Event {
	e := endEvent(run, eventType)
	e.LogicalAttemptID = attempt
	e.IdempotencyKey = contract.DeriveKey(contract.Line2, run, "", attempt, 1, eventType, e.PlanID, e.PlanVersion)
	return e
}

// TestEndersPRJ17QUE7: a machine that asks for it learns once that a run with a fence has ended, as
// a part of the same command: not of an event that the status does not allow, of runs without a
// fence, or of commands that are refused. Where the types of events do not tell, it learns that.
func TestEndersPRJ17QUE7(t *testing.T) {
	plain := stub{kind: 61, tables: []string{"B"}}
	l := open(t, storage.Options{Machines: []storage.Machine{newEnder(62, "C"), plain, newEnder(60, "A")}})
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
	want := func(when string, run, calls string) {
		t.Helper()
		for kind, prefix := range map[uint32]string{60: "A", 62: "C"} {
			row, err := readRow(l.Store, kind, prefix+run)
			if err != nil || string(row) != calls {
				t.Errorf("%s: machine %d was called %q times, %v; want %q", when, kind, row, err, calls)
			}
		}
	}
	fence := func(run string) storage.Operation { return storage.Operation{Kind: 60, Data: []byte(run)} }
	refuse := storage.Operation{Kind: 60, Data: []byte("refuse")}
	completed, failed := endEvent("a", contract.RunCompleted), endEvent("a", contract.RunFailed)

	_ = do(events("free", endEvent("free", contract.RunFailed)))
	want("no fence", "free", "")
	_ = do(events("a", storagetest.Event("a", 3)), fence("a"))
	_ = do(events("a", storagetest.Event("a", 4), completed))
	want("an end that PENDING does not allow", "a", "")
	_ = do(events("a", endEvent("a", contract.RunStarted), endEvent("a", contract.RunPaused)))
	_ = do(events("a", again("a", contract.RunCompleted, 2)))
	want("an end that PAUSED does not allow", "a", "")
	_ = do(events("a", endEvent("a", contract.RunResumed)))
	completed = again("a", contract.RunCompleted, 3)
	if err := do(events("a", storagetest.Event("a", 5), completed), refuse); err == nil {
		t.Fatal("the command was not refused")
	}
	want("a refused command", "a", "")
	_ = do(events("a", storagetest.Event("a", 5), completed))
	want("the end", "a", ".")
	_ = do(events("a", completed, storagetest.Event("a", 6)))
	want("a duplicate beside a new event", "a", ".")
	_ = do(events("a", completed, failed))
	want("another end behind a duplicate", "a", ".")
	c, err := storage.EncodeAppend(&storage.Append{RunID: "a", Events: []contract.Event{failed, endEvent("a", contract.RunCancelled)}})
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	p.Add(c)
	if _, err := l.Store.Apply(l.Applied().Index+1, 1, p.Seal(1)); err != nil {
		t.Fatal(err)
	}
	want("an append alone, twice", "a", ".")

	waits := storagetest.Event("b", 1)
	waits.Type = contract.StepWaitingForAttestation
	_ = do(events("b", endEvent("b", contract.RunStarted), waits), fence("b"))
	_ = do(events("b", endEvent("b", contract.RunCompleted)))
	want("an end that the step decides about", "b", "!")
	_ = do(events("b", storagetest.Event("b", 2)))
	want("another event behind it", "b", "!")
	if err := do(storage.Operation{Kind: 60, Data: []byte("settle b")}); err != nil {
		t.Fatal(err)
	}
	want("settled", "b", "!.")
	err = do(storage.Operation{Kind: 60, Data: []byte("settle free")})
	if got, ok := errors.AsType[*storage.StatusError](err); !ok || *got != (storage.StatusError{RunID: "free", Status: contract.StatusCompleted}) {
		t.Errorf("a run that has failed is settled as COMPLETED: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEnderFaultD10: an error of an Ender stops the node.
func TestEnderFaultD10(t *testing.T) {
	fault := errors.New("broken")
	e := newEnder(60, "A")
	e.fault = fault
	l := open(t, storage.Options{Machines: []storage.Machine{e}})
	event, err := storage.AppendOperation(&storage.Append{RunID: "a", Events: []contract.Event{storagetest.Event("a", 1)}})
	end, errEnd := storage.AppendOperation(&storage.Append{RunID: "a", Events: []contract.Event{endEvent("a", contract.RunFailed)}})
	c, errCommand := storage.EncodeCommand(event, storage.Operation{Kind: 60, Data: []byte("a")}, end)
	if err := errors.Join(err, errEnd, errCommand); err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	if _, err := l.Store.Apply(1, 1, p.Seal(1)); !errors.Is(err, fault) {
		t.Fatalf("got %v, want %v", err, fault)
	}
	_ = l.Store.Close()
}
