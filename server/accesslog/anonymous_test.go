package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/rpc"
)

// counted is what an event of refused calls says.
type counted struct {
	Identity, Address, Method, Reason string
	Count, Suppressed                 int64
}

// refuse makes a log refuse a call without an identity.
func refuse(t *testing.T, l *Log, address string) {
	l.Denied(t.Context(), rpc.Call{Address: address, Method: "GET /v1/runs"}, "UNAUTHENTICATED", status.Error(codes.Unauthenticated, "no"))
}

// TestAnonymousSEC11: ten anonymous calls a second for an hour grow the log by less than 100 KB.
// Each is counted, and none hides the refusal of a tenant. More addresses than there is room for
// share one event.
func TestAnonymousSEC11(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []counted
		bytes := 0
		l := openLog(t, vfs.NewMem(), func(_ context.Context, req *runlogv1.AppendEventsRequest) error {
			bytes += proto.Size(req)
			var c counted
			err := json.Unmarshal(req.Events[0].GetPayloadJson(), &c)
			events = append(events, c)
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		for i := range 36_000 {
			refuse(t, l, fmt.Sprintf("192.0.2.1:%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		var all int64
		for _, e := range events {
			all += e.Count
			if e.Address != "192.0.2.1" || e.Method != "GET /v1/runs" || e.Reason != "UNAUTHENTICATED" {
				t.Errorf("recorded %+v", e)
			}
		}
		if len(events) != 60 || all != 36_000 || bytes > 100_000 {
			t.Errorf("%d events of %d calls have %d bytes", len(events), all, bytes)
		}
		l.Denied(t.Context(), rpc.Call{Identity: auth.Local, Method: "m"}, "PERMISSION_DENIED", status.Error(codes.PermissionDenied, "no"))
		if got, want := events[60:], []counted{{Identity: "local", Method: "m", Reason: "PERMISSION_DENIED"}}; !slices.Equal(got, want) {
			t.Errorf("a refusal of a tenant is recorded as %+v", got)
		}
		events = nil
		for i := range 2000 {
			refuse(t, l, fmt.Sprintf("[2001:db8::%x]:1", i%1000))
		}
		time.Sleep(anonymousEvery)
		synctest.Wait()
		if len(events) != maxAddresses+1 || events[maxAddresses-1].Count != 2 ||
			!slices.ContainsFunc(events, func(c counted) bool { return c.Address == otherAddresses && c.Count == 2000-2*maxAddresses }) {
			t.Errorf("recorded %+v", events)
		}
		cancel()
		<-done
	})
}

// TestAnonymousStopSEC11: what was counted when the node stops, or while nothing can be appended,
// is recorded later.
func TestAnonymousStopSEC11(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, all := vfs.NewMem(), &replicated{refuses: raft.ErrNotLeader}
		l := openLog(t, disk, all.append)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		refuse(t, l, "192.0.2.1:1")
		time.Sleep(anonymousEvery)
		refuse(t, l, "192.0.2.2:1")
		synctest.Wait()
		cancel()
		<-done
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		all.refuses = nil
		deliverAll(t, openLog(t, disk, all.append))
		if want := []string{"GET /v1/runs*", "GET /v1/runs*"}; !slices.Equal(all.methods, want) {
			t.Errorf("recorded %q", all.methods)
		}
	})
}
