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
	appendOne(t, store)
	now := &labels{store: store, runID: "run"}
	f := &filter{labels: map[string]string{"team": "a"}}
	for range 10 {
		if ok, err := f.matches(&storage.Record{}, now); ok || err != nil {
			t.Fatalf("a run without labels: %t, %v", ok, err)
		}
		now.store = nil // Another read would fail.
	}
}

// TestNoSubscriptionBUS9: without a subscription, the log is not read again.
func TestNoSubscriptionBUS9(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	appendOne(t, term.store)
	if err := term.read(nil); err != nil { // To read, it would need a follower.
		t.Fatal(err)
	}
	applied := term.store.Applied()
	if got, want := term.position(), applied.Position(); got != want || want == 0 {
		t.Errorf("the tail is at %d, want %d", got, want)
	}
}

// appendOne stores the first event of a run.
func appendOne(t *testing.T, store *storage.Store) {
	t.Helper()
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
}
