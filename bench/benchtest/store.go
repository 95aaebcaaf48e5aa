package benchtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Store keeps runs in memory: it numbers events and recognises duplicates.
type Store struct {
	runlogv1.UnimplementedEventServiceServer
	runlogv1.UnimplementedRunServiceServer
	runlogv1.UnimplementedProjectionServiceServer

	Gap uint64 // left out between two events
	// Spoil changes an answer, or refuses the call, before it leaves.
	Spoil func(call uint64, res *runlogv1.AppendEventsResponse) error
	// Forget: a restart loses the last event of every run.
	Forget bool
	// Stale: snapshots lack the last event. Deaf: watchers get only the first watermark. Differing
	// is the number that a rebuild reports.
	Stale, Deaf bool
	Differing   int

	mu     sync.Mutex
	runs   map[string]*fakeRun
	dead   bool
	grown  chan struct{} // closed when something is stored
	Stored atomic.Uint64
	calls  atomic.Uint64
	Closed atomic.Int32
	// Watchers opened since the last measurement of memory.
	Watchers atomic.Int64
}

type fakeRun struct {
	lastSeq     uint64
	persistedAt *timestamppb.Timestamp
	answers     map[string]*runlogv1.AppendResult
}

// NewStore returns an empty store that takes calls.
func NewStore() *Store {
	return &Store{runs: make(map[string]*fakeRun), grown: make(chan struct{})}
}

// Append numbers the events of a request and stores those that are new. A killed store returns the
// status Unavailable and stores nothing. An error of Spoil comes after the events are stored.
func (f *Store) Append(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, status.Error(codes.Unavailable, "dead")
	}
	run := f.runs[req.RunId]
	if run == nil {
		run = &fakeRun{answers: make(map[string]*runlogv1.AppendResult)}
		f.runs[req.RunId] = run
	}
	res := &runlogv1.AppendEventsResponse{}
	for _, e := range req.Events {
		key := fmt.Sprintf("%s %s %d", e.EventType, e.StepId, e.LogicalAttemptId)
		if was := run.answers[key]; was != nil {
			res.Results = append(res.Results, &runlogv1.AppendResult{EventId: was.EventId, RunSeq: was.RunSeq, PersistedAt: was.PersistedAt, Idempotent: true})
			continue
		}
		run.lastSeq += 1 + f.Gap
		r := &runlogv1.AppendResult{EventId: e.EventId, RunSeq: run.lastSeq, PersistedAt: timestamppb.Now(), Persisted: true}
		run.persistedAt = r.PersistedAt
		run.answers[key] = r
		res.Results = append(res.Results, r)
		f.Stored.Add(1)
	}
	close(f.grown)
	f.grown = make(chan struct{})
	if f.Spoil != nil {
		if err := f.Spoil(f.calls.Add(1), res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// LastSeq returns the highest runSeq of a run, or 0 if the store does not have the run.
func (f *Store) LastSeq(run string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runs[run]; r != nil {
		return r.lastSeq
	}
	return 0
}

// AppendEvents is Append over gRPC.
func (f *Store) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return f.Append(req)
}

// AppendStream answers the requests of a stream in order. The first refused request ends the stream
// with its error.
func (f *Store) AppendStream(stream grpc.BidiStreamingServer[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		res, err := f.Append(req)
		if err != nil {
			return err
		}
		if err := stream.Send(&runlogv1.AppendStreamResponse{Results: res.Results}); err != nil {
			return err
		}
	}
}

// GetRun answers for every run id. A run that the store does not have is at runSeq 0.
func (f *Store) GetRun(_ context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	return &runlogv1.GetRunResponse{Run: &runlogv1.Run{RunId: req.RunId, LastSeq: f.LastSeq(req.RunId)}}, nil
}

// GetSnapshot answers for every run id with the result of Snapshot.
func (f *Store) GetSnapshot(_ context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	return &runlogv1.GetSnapshotResponse{Snapshot: f.Snapshot(req.RunId)}, nil
}

// ListEvents returns all events of a run after AfterSeq in one page. An event has its runSeq and no
// other field. The numbers that Gap leaves out are listed too.
func (f *Store) ListEvents(_ context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
	res := &runlogv1.ListEventsResponse{}
	for seq := req.AfterSeq + 1; seq <= f.LastSeq(req.RunId); seq++ {
		res.Events = append(res.Events, &runlogv1.EventRecord{RunSeq: seq})
	}
	return res, nil
}

// Snapshot returns a run snapshot with one step and the watermark LastSeq. If Stale is set, the
// watermark is one less.
func (f *Store) Snapshot(run string) *runlogv1.RunSnapshot {
	s := &runlogv1.RunSnapshot{RunId: run, LastEventSeq: f.LastSeq(run), Steps: []*runlogv1.StepSnapshot{{StepId: "a"}}}
	if f.Stale {
		s.LastEventSeq--
	}
	return s
}

// Follow calls tell whenever a run has grown.
func (f *Store) Follow(ctx context.Context, run string, tell func(seq uint64, persistedAt *timestamppb.Timestamp) error) error {
	for told := uint64(0); ; {
		f.mu.Lock()
		var seq uint64
		var at *timestamppb.Timestamp
		if r := f.runs[run]; r != nil {
			seq, at = r.lastSeq, r.persistedAt
		}
		grown := f.grown
		f.mu.Unlock()
		if seq > told && (told == 0 || !f.Deaf) {
			told = seq
			if err := tell(seq, at); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-grown:
		}
	}
}

// WatchRun serves the target over gRPC.
func (f *Store) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	first := true
	return f.Follow(stream.Context(), req.RunId, func(seq uint64, at *timestamppb.Timestamp) error {
		m := &runlogv1.Watermark{RunId: req.RunId, LastEventSeq: seq, PersistedAt: at}
		err := stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: m}, ResumeToken: "t"})
		if err == nil && first {
			first = false
			err = stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{Watermark: m}}})
		}
		return err
	})
}

// Kill makes every call fail until the store is restarted.
func (f *Store) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// Restart takes calls again after a moment.
func (f *Store) Restart() {
	time.AfterFunc(20*time.Millisecond, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.dead = false
		for _, r := range f.runs {
			if f.Forget && r.lastSeq > 0 {
				r.lastSeq--
			}
		}
	})
}

// Runs returns the number of runs.
func (f *Store) Runs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs)
}

// Register adds the services of a node to a server.
func (f *Store) Register(server *grpc.Server) {
	runlogv1.RegisterEventServiceServer(server, f)
	runlogv1.RegisterRunServiceServer(server, f)
	runlogv1.RegisterProjectionServiceServer(server, f)
}

// Serve serves the store on loopback until the test ends, and returns the address.
func (f *Store) Serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	f.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		// Stop may come before the goroutine above has called Serve.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("benchtest: serve the store: %v", err)
		}
	})
	return l.Addr().String()
}
