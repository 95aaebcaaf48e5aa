package runs

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector"
	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestListAsOfWaitsForItsMomentTR7: a list as of a moment waits until the projection has the moment
// and minPosition. Only the labels of a filter need what is acknowledged now.
func TestListAsOfWaitsForItsMomentTR7(t *testing.T) {
	t.Parallel()
	local, err := storagetest.Open(storage.Options{Dir: "store", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	for i := range 5 {
		request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", i, 1)}}
		if _, err := local.Propose(int64(i+1)*1000, []storagetest.Request{request}); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Options{Node: &racing{store: local.Store}})
	applied := local.Store.Applied()
	at, now := storage.Position(2), applied.Position()
	later := rpc.FormatPosition(local.Store.Incarnation(), at+1)
	labels := run.Filter{Labels: []run.Label{{Key: "a", Value: "1"}}}
	for _, c := range []struct {
		what   string
		req    *runlogv1.ListRunsRequest
		filter run.Filter
		want   storage.Position
	}{
		{"any", &runlogv1.ListRunsRequest{}, run.Filter{}, at},
		{"LOCAL", &runlogv1.ListRunsRequest{Consistency: runlogv1.Consistency_LOCAL}, run.Filter{}, at},
		{"minPosition", &runlogv1.ListRunsRequest{MinPosition: later}, run.Filter{}, at + 1},
		{"labels", &runlogv1.ListRunsRequest{}, labels, now},
		{"labels, LOCAL", &runlogv1.ListRunsRequest{Consistency: runlogv1.Consistency_LOCAL}, labels, at},
	} {
		got, err := s.leastAsOf(c.req, &listAsOf{position: at, filter: c.filter, moment: rpc.Moment{At: projector.Always}})
		if err != nil || got != c.want || now <= at+1 {
			t.Errorf("%s: waits for %d of %d, %v; want %d", c.what, got, now, err, c.want)
		}
	}
	if _, err := s.leastAsOf(&runlogv1.ListRunsRequest{MinPosition: "x"}, &listAsOf{}); err == nil {
		t.Error("a minPosition that is none")
	}
}
