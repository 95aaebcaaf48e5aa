package target

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// Remote is a runlog node as its clients see it: a Target, a Streamer, a Reader and a Watcher.
type Remote struct {
	address string
	links   []link
	turn    atomic.Uint64
}

// link has one connection for streams. Unary calls use the client library, which has a connection
// of its own.
type link struct {
	client  *client.Client
	conn    *grpc.ClientConn
	streams runlogv1.EventServiceClient
}

var (
	_ Target   = (*Remote)(nil)
	_ Streamer = (*Remote)(nil)
	_ Reader   = (*Remote)(nil)
	_ Watcher  = (*Remote)(nil)
)

// Connect prepares a number of connections to the node at address, which callers share in turn. It
// does not wait for the node. address may be a comma-separated list of one cluster's nodes: calls
// then start at the first and go to the leader, and streams are spread over the nodes.
func Connect(address string, connections int, options ...grpc.DialOption) (*Remote, error) {
	list := strings.Split(address, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	r := &Remote{address: list[0]}
	for i := range max(connections, 1) {
		// Calls are not repeated: each failure counts.
		c, err := client.Dial(address, client.Options{MaxAttempts: 1, DialOptions: options})
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		conn, err := grpc.NewClient(list[i%len(list)], append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
		if err != nil {
			return nil, errors.Join(err, c.Close(), r.Close())
		}
		r.links = append(r.links, link{client: c, conn: conn, streams: runlogv1.NewEventServiceClient(conn)})
	}
	return r, nil
}

func (r *Remote) link() *link {
	if len(r.links) == 1 {
		return &r.links[0]
	}
	return &r.links[r.turn.Add(1)%uint64(len(r.links))]
}

// Append calls AppendEvents.
func (r *Remote) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return r.link().client.AppendEvents(ctx, req)
}

// OpenStream calls AppendStream.
func (r *Remote) OpenStream(ctx context.Context) (Stream, error) {
	return r.link().streams.AppendStream(ctx)
}

// GetRun asks for a run's metadata and head.
func (r *Remote) GetRun(ctx context.Context, runID string) (*runlogv1.Run, error) {
	return r.link().client.GetRun(ctx, &runlogv1.GetRunRequest{RunId: runID})
}

// GetSnapshot returns a run's snapshot.
func (r *Remote) GetSnapshot(ctx context.Context, runID string) (*runlogv1.RunSnapshot, error) {
	res, err := r.link().client.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: runID})
	return res.GetSnapshot(), err
}

// ListEvents asks for the events after a runSeq.
func (r *Remote) ListEvents(ctx context.Context, runID string, afterSeq uint64) ([]*runlogv1.EventRecord, error) {
	var events []*runlogv1.EventRecord
	for e, err := range r.link().client.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: runID, AfterSeq: afterSeq}) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Watch calls WatchRun for each of runs.
func (r *Remote) Watch(ctx context.Context, runs []string, told func(watcher int, m Mark)) (Watches, error) {
	requests := make([]proto.Message, len(runs))
	for i, run := range runs {
		requests[i] = &runlogv1.WatchRunRequest{RunId: run, View: runlogv1.WatchView_WATERMARK}
	}
	s, err := Subscribe(ctx, r.address, runlogv1.ProjectionService_WatchRun_FullMethodName, len(r.links), requests,
		func(stream int, message []byte, at time.Time) bool {
			m, live := parseMark(message)
			m.At = at
			told(stream, m)
			return live
		})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the connections and every call that is still on them.
func (r *Remote) Close() error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.client.Close(), l.conn.Close())
	}
	return errors.Join(errs...)
}

var _ Auditor = (*Remote)(nil)

func (r *Remote) audit() runlogv1.AuditServiceClient {
	return runlogv1.NewAuditServiceClient(r.link().conn)
}

// QueryEvents calls QueryEvents.
func (r *Remote) QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
	return r.audit().QueryEvents(ctx, req, grpc.MaxCallRecvMsgSize(maxPageBytes))
}

// maxPageBytes is more than a node puts into one message.
const maxPageBytes = 16 << 20

// ExportEvents calls ExportEvents.
func (r *Remote) ExportEvents(
	ctx context.Context, req *runlogv1.ExportEventsRequest, read func(*runlogv1.ExportEventsResponse),
) (*runlogv1.ExportSummary, error) {
	stream, err := r.audit().ExportEvents(ctx, req, grpc.MaxCallRecvMsgSize(maxPageBytes))
	for err == nil {
		var m *runlogv1.ExportEventsResponse
		if m, err = stream.Recv(); err == nil {
			if read(m); m.Summary != nil {
				return m.Summary, nil
			}
		}
	}
	return nil, err
}

// DrainExport calls ExportEvents and reads only the size of the messages: a real auditor decodes
// them on another machine.
func (r *Remote) DrainExport(ctx context.Context, req *runlogv1.ExportEventsRequest) (bytes uint64, err error) {
	d := &drain{CodecV2: encoding.GetCodecV2("proto")}
	stream, err := r.audit().ExportEvents(ctx, req, grpc.MaxCallRecvMsgSize(maxPageBytes), grpc.ForceCodecV2(d))
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return d.bytes, err
}

// drain is a codec that discards messages.
type drain struct {
	encoding.CodecV2
	bytes uint64
}

func (d *drain) Unmarshal(data mem.BufferSlice, _ any) error {
	d.bytes += uint64(data.Len())
	return nil
}

// VerifyRun calls VerifyRun.
func (r *Remote) VerifyRun(ctx context.Context, runID string) (*runlogv1.VerifyRunResponse, error) {
	return r.audit().VerifyRun(ctx, &runlogv1.VerifyRunRequest{RunId: runID})
}
