//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// read reads some run through some node, over and over, and holds what it sees against what was
// seen before.
func (l *clusterLoad) read(ctx context.Context) {
	for ctx.Err() == nil {
		run, n := l.ledger.someRun(), l.c.any()
		switch rand.IntN(4) {
		case 0:
			l.readSnapshot(ctx, run, n)
		case 1:
			l.readLocal(ctx, run, n)
		default:
			_, _ = l.lastSeq(ctx, run, n) // what a node refuses is no fault
		}
		time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
	}
}

// readSnapshot: no snapshot is older than what the caller may expect (READ-2).
func (l *clusterLoad) readSnapshot(ctx context.Context, run string, n *clusterNode) {
	floor := l.ledger.floor(run)
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	l.readSnapshotSince(ctx, run, n, floor)
}

func (l *clusterLoad) readSnapshotSince(ctx context.Context, run string, n *clusterNode, floor uint64) {
	resp, err := runlogv1.NewProjectionServiceClient(n.conn).GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run})
	switch {
	case err == nil && resp.Snapshot.LastEventSeq < floor, status.Code(err) == codes.NotFound && floor > 0:
		l.t.Errorf("%s: a snapshot through %s is at runSeq %d; %d was seen before it was asked for (READ-2): %v",
			run, n.name, resp.GetSnapshot().GetLastEventSeq(), floor, err)
	case err == nil:
		l.ledger.saw(run, resp.Snapshot.LastEventSeq)
	case status.Code(err) != codes.NotFound:
		l.wantPassing(err)
	}
}

// readLocal: a local read waits for minSeq, or says that it was not reached (READ-2).
func (l *clusterLoad) readLocal(ctx context.Context, run string, n *clusterNode) {
	floor := l.ledger.floor(run)
	ctx, cancel := context.WithTimeout(ctx, callPatience/2)
	defer cancel()
	resp, err := runlogv1.NewEventServiceClient(n.conn).ListEvents(ctx, &runlogv1.ListEventsRequest{
		RunId: run, PageSize: 1, AfterSeq: floor, Consistency: runlogv1.Consistency_LOCAL, MinSeq: floor})
	switch {
	case err == nil && resp.LastSeq < floor:
		l.t.Errorf("%s: a local read through %s that asked for runSeq %d shows %d (READ-2)", run, n.name, floor, resp.LastSeq)
	case err == nil, grpcReason(err) == contract.ReasonNotReached, grpcReason(err) == contract.ReasonRunNotFound:
	default:
		l.wantPassing(err)
	}
}

// stream appends over AppendStream, many requests at a time, and opens another stream through some
// node when one ends (APP-8). What had no answer is sent again first.
func (l *clusterLoad) stream(ctx context.Context) {
	var open []*sentAppend
	defer func() {
		// Settled as if they were a writer's.
		for _, a := range open {
			l.left = append(l.left, &clusterWriter{load: l, name: "s", pending: a})
		}
	}()
	for ; ctx.Err() == nil; l.streams++ {
		open = l.streamOnce(ctx, fmt.Sprintf("s-%d", l.streams/4), l.streams, open)
		time.Sleep(10 * time.Millisecond)
	}
}

// streamOnce sends on one stream until it ends, and returns the requests that have no final answer,
// in order.
func (l *clusterLoad) streamOnce(ctx context.Context, run string, number int, again []*sentAppend) (open []*sentAppend) {
	ctx, cancel := context.WithTimeout(ctx, time.Second+time.Duration(rand.IntN(2000))*time.Millisecond)
	defer cancel()
	stream, err := runlogv1.NewEventServiceClient(l.c.any().conn).AppendStream(ctx)
	if err != nil {
		return again
	}
	sent := make(chan *sentAppend, 32)
	go func() {
		defer close(sent)
		for i := 0; ctx.Err() == nil; i++ {
			var a *sentAppend
			if i < len(again) {
				a = again[i]
			} else {
				a = l.ledger.open(&runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{clusterEvent(fmt.Sprintf("%d/%d", number, i))}})
			}
			a.sentAt = time.Now()
			sent <- a
			if stream.Send(a.req) != nil {
				return
			}
			time.Sleep(time.Duration(rand.IntN(6)) * time.Millisecond)
		}
		_ = stream.CloseSend() // never fails
	}()
	n := 0
	for a := range sent {
		n++
		var resp *runlogv1.AppendStreamResponse
		if err == nil {
			if resp, err = stream.Recv(); err != nil {
				cancel()
			}
		}
		if err != nil {
			// A stopping node ends the stream when it has answered all that it admitted.
			a.maybe = a.maybe || grpcReason(err) != contract.ReasonShuttingDown
			open = append(open, a)
			continue
		}
		if resp.Status == nil {
			l.ledger.acknowledge(a, resp.Results, resp.LastSeq)
		} else if !l.refused(a, status.FromProto(resp.Status).Err()) {
			open = append(open, a)
		}
	}
	if n < len(again) {
		open = append(open, again[n:]...)
	}
	return open
}
