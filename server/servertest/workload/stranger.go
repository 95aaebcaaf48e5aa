package workload

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// Stranger starts a client that asks for the runs of every tenant, until ctx ends. Its connections
// carry credentials for one tenant: an answer with a byte of another one is broken, and so is an
// append that is taken (SEC-4). The caller must call wait.
func (c *Clients) Stranger(ctx context.Context, host string, own int) (wait func(), err error) {
	w, err := c.newGuest(host)
	if err != nil {
		return nil, err
	}
	s := &stranger{worker: w, own: own}
	return start(func() {
		defer w.close()
		for ; ctx.Err() == nil; pause(ctx, time.Duration(w.rng.Int64N(int64(2*c.opts.Think)))) {
			s.ask(ctx)
		}
	}), nil
}

type stranger struct {
	*worker
	own int // tenant
}

// ask makes one call about a run that other clients append to.
func (s *stranger) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.clients.opts.Patience)
	defer cancel()
	run, node := s.run(), s.rng.IntN(len(s.conns))
	tenant := "" // any
	if s.rng.IntN(3) == 0 {
		tenant = tenantOf(run)
	}
	level := []runlogv1.Consistency_Level{runlogv1.Consistency_LOCAL, runlogv1.Consistency_LINEARIZABLE}[s.rng.IntN(2)]
	runs := runlogv1.NewRunServiceClient(s.conns[node])
	switch s.rng.IntN(8) {
	case 0:
		s.look(runs.GetRun(ctx, &runlogv1.GetRunRequest{RunId: run, Consistency: level}))
	case 1:
		s.look(runs.ListRuns(ctx, &runlogv1.ListRunsRequest{TenantId: tenant, PageSize: 50}))
	case 2:
		s.look(s.events(node).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, PageSize: 50, Consistency: level}))
	case 3:
		s.look(s.projections(node).GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run, Consistency: level}))
	case 4:
		now := time.Now()
		s.look(s.audits(node).QueryEvents(ctx, &runlogv1.QueryEventsRequest{
			From: timestamppb.New(now.Add(-10 * time.Second)), To: timestamppb.New(now), TenantId: tenant, PageSize: 50,
		}))
	case 5:
		watch(ctx, s, s.projections(node).WatchRun, &runlogv1.WatchRunRequest{RunId: run})
	case 6:
		watch(ctx, s, s.projections(node).WatchRuns, &runlogv1.WatchRunsRequest{TenantId: tenant, IncludeExisting: true})
	case 7:
		s.write(ctx, node, run)
	}
}

// write appends to a foreign run without its tenant, as if it were its own. Events of line 1.1 may
// leave it out.
func (s *stranger) write(ctx context.Context, node int, run string) {
	if tenantOf(run) == s.tenant(s.own) {
		return
	}
	e := s.clients.envelope(run, s.rng)
	e.EventType, e.ContractVersion, e.TenantId, e.ProjectId, e.EnvironmentId = "Noted", "1.1", "", "", ""
	_, err := s.worker.events(node).AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}})
	if err == nil {
		s.clients.opts.Broken("foreign append: a client of %s has appended to run %s of %s", s.tenant(s.own), run, tenantOf(run))
	}
}

func (*stranger) tenant(n int) string { return fmt.Sprint("tenant-", n) }

// look requires that no byte of an answer is another tenant's.
func (s *stranger) look(m proto.Message, err error) {
	if err != nil {
		return
	}
	b, err := proto.Marshal(m)
	if err != nil {
		s.clients.opts.Broken("answer to a stranger: %v", err)
	}
	for other := range tenants {
		if other != s.own && bytes.Contains(b, []byte(s.tenant(other))) {
			s.clients.opts.Broken("foreign answer: a client of %s has read what belongs to %s in a %T", s.tenant(s.own), s.tenant(other), m)
		}
	}
}

// watch reads a stream for up to two seconds.
func watch[Q any, A any, M interface {
	*A
	proto.Message
}](ctx context.Context, s *stranger, open func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error), req Q) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.rng.Int64N(int64(2*time.Second))))
	defer cancel()
	stream, err := open(ctx, req)
	for err == nil {
		var resp *A
		if resp, err = stream.Recv(); err == nil {
			s.look(M(resp), nil)
		}
	}
}
