package delivery

import (
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestLabelsAreReadOnceBUS9: what an event costs does not grow with a read of the store for each
// subscription to other labels.
func TestLabelsAreReadOnceBUS9(t *testing.T) {
	t.Parallel()
	store := openTerm(t).store
	op, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: []contract.Event{storagetest.Event("run", 0)}})
	var cmd storage.Command
	if err == nil {
		cmd, err = storage.EncodeCommand(op)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	if err == nil {
		_, err = store.Apply(store.Applied().Index+1, 1, p.Seal(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	now := &labels{store: store, runID: "run"}
	f := &filter{labels: map[string]string{"team": "a"}}
	for range 10 {
		if ok, err := f.matches(&storage.Record{}, now); ok || err != nil {
			t.Fatalf("a run without labels: %t, %v", ok, err)
		}
		now.store = nil // Another read would fail.
	}
}
