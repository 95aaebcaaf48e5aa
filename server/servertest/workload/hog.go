package workload

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

const (
	hogTenant = "tenant-limited"
	// hogRate is the limit of the tenant, in events a second, and hogEvents what it asks for at a
	// time: about ten times as much.
	hogRate   = 2
	hogEvents = 5
	hogWindow = 10 * time.Second
	// hogMost is what nodes may accept within a window: each new leader counts from zero, and no
	// window has ten of them.
	hogMost = int(hogWindow/time.Second)*hogRate + 10*(hogRate+hogEvents)
	// hogRun is how many appends a run gets.
	hogRun = 50
)

// Hog starts a client of a tenant that asks for more than its limit. The limit is set once all
// nodes know the tenant; from then on it holds at every leader (SEC-6). The connections of host
// carry every right. The caller must call wait.
func (c *Clients) Hog(ctx context.Context, host string) (wait func(), err error) {
	w, err := c.newGuest(host)
	if err != nil {
		return nil, err
	}
	w.hired = ctx
	h := &hog{worker: w}
	return start(func() {
		defer w.close()
		for node := range w.conns {
			h.append(ctx, node)
		}
		if !w.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runlogv1.NewAccessServiceClient(conn).SetTenantLimits(ctx, &runlogv1.SetTenantLimitsRequest{
				TenantId: hogTenant, Limits: &runlogv1.TenantLimits{EventsPerSecond: hogRate},
			})
			return err
		}) {
			return
		}
		pause(ctx, 2*time.Second) // Nodes read limits once a second.
		for h.accepted = nil; ctx.Err() == nil; pause(ctx, c.opts.Think) {
			h.append(ctx, w.rng.IntN(len(w.conns)))
			h.judge()
		}
	}), nil
}

type hog struct {
	*worker
	calls    int
	accepted []time.Time // of each event, for one window
}

// append appends to a run of the tenant, and counts what is accepted.
func (h *hog) append(ctx context.Context, node int) {
	ctx, cancel := context.WithTimeout(ctx, h.patience())
	defer cancel()
	run := "limited-" + strconv.Itoa(h.calls/hogRun)
	h.calls++
	req, a := &runlogv1.AppendEventsRequest{RunId: run}, history.Append{Run: run}
	for range hogEvents {
		e := h.clients.envelope(run, h.rng)
		e.EventType, e.TenantId = "Noted", hogTenant
		h.clients.addSent(run, e)
		req.Events, a.Events = append(req.Events, e), append(a.Events, asSent(e))
	}
	op, ticket := h.call(node, history.Op{Appends: []history.Append{a}})
	resp, err := h.events(node).AppendEvents(ctx, req)
	h.answered(&op.Appends[0], resp.GetResults(), resp.GetLastSeq(), err)
	h.clients.recorder.Return(ticket, op)
	for range resp.GetResults() {
		h.accepted = append(h.accepted, time.Now())
	}
}

// judge requires that the last window has no more than the limit allows.
func (h *hog) judge() {
	for len(h.accepted) > 0 && time.Since(h.accepted[0]) > hogWindow {
		h.accepted = h.accepted[1:]
	}
	if n := len(h.accepted); n > hogMost {
		h.clients.opts.Broken("tenant limit: %d events of %s were accepted within %s, and its limit is %d a second", n, hogTenant, hogWindow, hogRate)
		h.accepted = nil
	}
}
