package storage_test

import (
	"errors"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// importOf makes an import of n events of a run, at every second runSeq.
func importOf(runID string, n int) *storage.Append {
	a := &storage.Append{RunID: runID, Events: storagetest.Events(runID, 0, n)}
	for i := range a.Events {
		a.Imported = append(a.Imported, storage.Assigned{RunSeq: uint64(2*i + 1), Original: contract.Original{PersistedAt: int64(i + 1)}})
	}
	return a
}

// TestImportTwiceInOneRequestIDM8: a record that comes twice in one request collapses, as it does
// in two; one that differs from what comes first under its key refuses the request, which then
// stores nothing.
func TestImportTwiceInOneRequestIDM8(t *testing.T) {
	p := storagetest.NewPair(open(t, storage.Options{}))
	twice := importOf("run", 2)
	twice.Events = append(twice.Events, twice.Events[0], twice.Events[1])
	twice.Imported = append(twice.Imported, twice.Imported[0], twice.Imported[1])
	for range 2 {
		outcomes, err := p.Propose(1e6, storagetest.Request{Append: twice})
		if err != nil {
			t.Fatal(err)
		}
		if o := outcomes[0]; o.Err != nil || o.LastSeq != 3 || len(o.Results) != 4 || o.Results[2].RunSeq != 1 || o.Results[3].RunSeq != 3 || o.Results[3].PersistedAt != o.Results[1].PersistedAt {
			t.Fatalf("outcome %+v", o)
		}
	}
	other := importOf("other", 2)
	other.Events = append(other.Events, other.Events[0])
	other.Imported = append(other.Imported, storage.Assigned{RunSeq: 5, Original: contract.Original{PersistedAt: 5}})
	outcomes, err := p.Propose(1e6, storagetest.Request{Append: other})
	if err != nil {
		t.Fatal(err)
	}
	var refused *storage.ImportError
	if !errors.As(outcomes[0].Err, &refused) || refused.Field != "idempotencyKey" || refused.Index != 2 {
		t.Errorf("outcome %+v", outcomes[0])
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestImportOfAChangedRecord: an imported record must not differ from the record that is stored
// under its key, in the same request or an earlier one. That includes what an append under the key
// may change (IDM-7). An append under the key of an imported event is answered like any other.
func TestImportOfAChangedRecord(t *testing.T) {
	p := storagetest.NewPair(open(t, storage.Options{}))
	whole := importOf("run", 2)
	changed := func(inSameRequest bool) *storage.Append {
		a := importOf("run", 2)
		if inSameRequest {
			a.Events, a.Imported = append(a.Events, a.Events[1]), append(a.Imported, a.Imported[1])
		}
		a.Events[len(a.Events)-1].EmittedAt++
		return a
	}
	appended := &storage.Append{RunID: "run", Events: changed(false).Events}
	for i, step := range []struct {
		a       *storage.Append
		refused bool
	}{{changed(true), true}, {whole, false}, {changed(false), true}, {changed(true), true}, {appended, false}, {whole, false}} {
		outcomes, err := p.Propose(1e6, storagetest.Request{Append: step.a})
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		var refused *storage.ImportError
		if got := errors.As(outcomes[0].Err, &refused) && refused.Field == "idempotencyKey"; got != step.refused {
			t.Errorf("step %d: %+v, refused %v, want %v", i, outcomes[0], got, step.refused)
		}
		if i == 4 && (!outcomes[0].Results[1].Duplicate || !outcomes[0].Results[1].SameContent) {
			t.Errorf("an append under the key: %+v", outcomes[0].Results[1])
		}
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestImportAndAppendInOneProposal: of a new run that is imported and appended to in one proposal,
// the first request decides which it is (ADR 12), and both go on behind each other (APP-1).
func TestImportAndAppendInOneProposal(t *testing.T) {
	p := storagetest.NewPair(open(t, storage.Options{}))
	more := importOf("a", 3)
	more.Events, more.Imported = more.Events[2:], more.Imported[2:]
	outcomes, err := p.Propose(1e6,
		storagetest.Request{Append: importOf("a", 2)}, storagetest.Request{Append: more}, appendTo("a", 5, 2), storagetest.Request{Append: importOf("a", 3)},
		appendTo("b", 5, 2), storagetest.Request{Append: importOf("b", 2)})
	if err != nil {
		t.Fatal(err)
	}
	for i, last := range []uint64{3, 5, 7, 7, 2, 2} {
		var exists *storage.RunExistsError
		if o := outcomes[i]; o.LastSeq != last || errors.As(o.Err, &exists) != (i == 5) {
			t.Errorf("request %d: %+v, want runSeq %d", i, o, last)
		}
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	if err := p.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}
