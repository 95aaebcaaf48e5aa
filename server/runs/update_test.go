package runs

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// racing is a node at which another tenant makes a run just before each command is applied.
type racing struct {
	Node
	store    *storage.Store
	executed int
}

func (n *racing) Store() *storage.Store           { return n.store }
func (n *racing) ReadIndex(context.Context) error { return nil }

func (n *racing) Execute(context.Context, storage.Command) (storage.Outcome, error) {
	n.executed++
	return storage.Outcome{}, nil
}

// TestUpdateBeforeCreationSEC4: an update of a run that does not exist yet is never proposed for a
// caller of some tenants: the run may be another tenant's when it is applied.
func TestUpdateBeforeCreationSEC4(t *testing.T) {
	t.Parallel()
	local, err := storagetest.Open(storage.Options{Dir: "store", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	n := &racing{store: local.Store}
	s := New(Options{Node: n})
	ctx := auth.With(t.Context(), &auth.Identity{Name: "token:a", Tenants: auth.TenantsOf("a"), Roles: auth.AllRoles})
	reference := "temporal://a"
	_, err = s.UpdateRun(ctx, &runlogv1.UpdateRunRequest{RunId: "run", EngineRunRef: &reference})
	_, err2 := s.SetEngineRunRef(ctx, &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: reference})
	for _, err := range []error{err, err2} {
		if !errors.As(err, new(*storage.RunNotFoundError)) {
			t.Errorf("got %v", err)
		}
	}
	if n.executed > 0 {
		t.Errorf("%d commands were proposed", n.executed)
	}
}
