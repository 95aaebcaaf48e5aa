package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/network"
)

// Env is what an engine under test finds outside.
type Env struct {
	// Server is the server of runlog.
	Server *clienttest.Server
	// Network is that of a scenario in fake time, where the server is. nil: that of the machine.
	Network *network.Network
	// Blobs has the plans, and has room for more below the URI Base.
	Blobs *blob.Registry
	Base  string
	// Kills: the scenario kills processes again and again, so the platform should soon notice that
	// one is lost. In the others it should be patient: on a busy machine every process is slow.
	Kills bool
	// Tenant, Project and Environment are those of all runs.
	Tenant, Project, Environment string
}

// Engine is an engine under test, and what is left of it when its processes are killed.
type Engine struct {
	// Open opens a process of the engine: its adapter, and its worker, which works until ctx ends.
	// nil for work: the process has no worker.
	Open func(t testing.TB, p *Process) (a engine.Adapter, work func(ctx context.Context))
	// Queue is the queue whose runs the workers lease by themselves. Empty: each process also has a
	// reconciler, which leases the runs and starts them by the adapter.
	Queue string
	// Loses: the platform counts engine attempts that it gave to no worker. The attempts of events
	// are then at least those that a scenario expects.
	Loses bool
	// Lapse is called after a kill: the platform notices it, as if time had gone by. nil: it does
	// at once. The leases of the process have expired.
	Lapse func()
	// Tick is called again and again while a scenario waits and nothing happens: a platform whose
	// clock is simulated sets it forward. nil: nothing.
	Tick func()
}

// Process is a process of the engine. Everything that it does goes through the fields and methods
// of its Process, so that the suite can kill it.
type Process struct {
	*Env
	// Name is another one for each process. A worker that leases runs leases them by this name.
	Name string
	// Client is a client of the server.
	Client *client.Client
	// Executors execute steps of the type "test".
	Executors *executor.Registry

	ctx    context.Context // ends when the process is killed
	cancel context.CancelFunc
	// changed tells the scenario that the process is killed.
	changed func()

	mu   sync.Mutex
	left int  // actions until it is killed; below 0: it is not
	late bool // the last action has its effect, and its answer is lost
	done int  // actions
	dead bool
}

var errKilled = errors.New("enginetest: the process is killed")

// Act makes one action of the process beside those of its Client and its Executors, such as a call
// of its platform. The suite kills the process before or after it. Then Act returns an error.
func (p *Process) Act(do func() error) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errKilled
	}
	p.done++
	last := p.left == p.done
	p.mu.Unlock()
	if last && !p.late {
		p.kill()
		return errKilled
	}
	err := do()
	if last {
		p.kill()
	}
	if p.Killed() {
		return errKilled
	}
	return err
}

// Killed reports whether the process is killed.
func (p *Process) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	p.cancel()
	p.changed()
}

// Transport makes each request of an HTTP client of the process an action, but for those that skip
// says to be none, such as polls. nil: all are actions. A request of a killed process fails.
func (p *Process) Transport(next http.RoundTripper, skip func(*http.Request) bool) http.RoundTripper {
	return &transport{p, next, skip}
}

type transport struct {
	p    *Process
	next http.RoundTripper
	skip func(*http.Request) bool
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(r *http.Request) (res *http.Response, err error) {
	send := func() error {
		res, err = t.next.RoundTrip(r) //nolint:bodyclose // It is closed below, or the caller's.
		return err
	}
	if t.skip != nil && t.skip(r) {
		if err = send(); err == nil && t.p.Killed() {
			err = errKilled
		}
	} else {
		err = t.p.Act(send)
	}
	if err != nil && res != nil {
		_ = res.Body.Close()
		res = nil
	}
	return res, err
}

// Plans returns a Fetcher of the plans of the runs. It compares them with what the engine can do;
// nil: with the executors of the process.
func (p *Process) Plans(t testing.TB, capabilities []string) *plan.Fetcher {
	t.Helper()
	if capabilities == nil {
		capabilities = p.Executors.Capabilities()
	}
	f, err := plan.NewFetcher(plan.FetcherOptions{Source: p.Blobs, Capabilities: capabilities})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// clientOf returns a client whose calls are those of the process.
func (p *Process) clientOf(t testing.TB) *client.Client {
	return p.Server.Client(client.Options{MinBackoff: 2 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(p.unary), grpc.WithStreamInterceptor(p.stream)}})
}

// reading are the beginnings of the names of calls that change nothing.
var reading = []string{"Get", "List", "Read", "Watch", "WhoAmI", "Verify", "Query", "Export", "RenewLease"}

func isAction(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, prefix := range reading {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// dead is what a killed process gets. No client tries again after it.
func dead(err error) error {
	if errors.Is(err, errKilled) {
		return status.Error(codes.Canceled, errKilled.Error())
	}
	return err
}

func (p *Process) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if p.Killed() {
		return dead(errKilled)
	}
	send := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
	// A poll that finds nothing is no action.
	if leases, ok := reply.(*runlogv1.LeaseRunsResponse); ok {
		if err := send(); err != nil || len(leases.GetLeases()) == 0 {
			return err
		}
		send = func() error { return nil }
	}
	if isAction(method) {
		return dead(p.Act(send))
	}
	if err := send(); err != nil {
		return err
	}
	if p.Killed() {
		return dead(errKilled)
	}
	return nil
}

func (p *Process) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if p.Killed() {
		return nil, dead(errKilled)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	context.AfterFunc(s.Context(), func() { stop(); cancel() })
	return &stream{s, p, isAction(method)}, nil
}

// stream is a stream of a process. Each message that it sends in a call that changes something is
// an action.
type stream struct {
	grpc.ClientStream
	p      *Process
	action bool
}

// SendMsg sends a message.
func (s *stream) SendMsg(m any) error {
	if s.action {
		return dead(s.p.Act(func() error { return s.ClientStream.SendMsg(m) }))
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives a message.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.p.Killed() {
		return dead(errKilled)
	}
	return err
}

// worker runs what a process does until it is killed. bridged: engine.Signals is a part of it.
func (p *Process) worker(t testing.TB, e Engine, a engine.Adapter, work func(context.Context), bridged bool) (join func()) {
	var working sync.WaitGroup
	if work != nil {
		working.Go(func() { work(p.ctx) })
	}
	if bridged {
		working.Go(func() { (&engine.Signals{Log: p.Client, Deliver: a.Signal, Tenant: p.Tenant}).Run(p.ctx) })
	}
	if e.Queue == "" {
		r, err := engine.New(engine.Options{Client: p.Client, Starter: engine.Starts(a), Worker: p.Name, Tenant: p.Tenant, Grace: time.Millisecond})
		if err != nil {
			t.Fatal(fmt.Errorf("enginetest: %w", err))
		}
		working.Go(func() { _ = r.Run(p.ctx) }) // It ends with the process.
	}
	return func() { _ = p.Client.Close(); working.Wait() }
}
