package conductortest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/testbed/network"
)

// Server is a Conductor. It ends with its test. Its methods may be called from any goroutine; Start
// and Up belong to that of the test.
type Server struct {
	t       testing.TB
	network *network.Network // nil: that of the machine
	address string
	authKey string

	mu        sync.Mutex
	ahead     time.Duration // of the machine's clock
	defs      map[string]*WorkflowDef
	taskDefs  map[string]TaskDef
	workflows []*Workflow
	byID      map[string]*Workflow
	tasks     map[string]*Task
	queues    map[string][]*Task // by task type, in the order of their tasks
	ids       int
	calls     map[Op]int
	faults    []*fault
	changed   chan struct{} // closed when a task may have become due

	transport *http.Transport // of clients on a network in memory

	serving *http.Server
	served  sync.WaitGroup
}

// Option is an option of Start.
type Option func(*Server)

// Authorized makes the server refuse each request under /api that does not have a value in its
// header X-Authorization.
func Authorized(value string) Option { return func(s *Server) { s.authKey = value } }

// On makes the server listen on a network in memory, as a test in fake time needs it. Transport
// leads there.
func On(n *network.Network) Option { return func(s *Server) { s.network = n } }

// Start starts a server on a free port of loopback.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{
		t: t, defs: map[string]*WorkflowDef{}, taskDefs: map[string]TaskDef{}, byID: map[string]*Workflow{},
		tasks: map[string]*Task{}, queues: map[string][]*Task{}, calls: map[Op]int{}, changed: make(chan struct{}),
	}
	for _, set := range opts {
		set(s)
	}
	t.Cleanup(s.Down)
	s.address = "127.0.0.1:0"
	if s.network != nil {
		dial := s.network.Dialer("client")
		s.transport = &http.Transport{DialContext: func(ctx context.Context, _, at string) (net.Conn, error) { return dial(ctx, at) }}
		t.Cleanup(s.transport.CloseIdleConnections)
	}
	s.Up()
	return s
}

// URL returns the address of the server, without a path.
func (s *Server) URL() string { return "http://" + s.address }

// Transport returns a transport of clients of the server.
func (s *Server) Transport() http.RoundTripper {
	if s.network == nil {
		return http.DefaultTransport
	}
	return s.transport
}

// Up starts a server that is down, at the same address. It has forgotten nothing.
func (s *Server) Up() {
	s.t.Helper()
	l, err := s.listen()
	if err != nil {
		s.t.Fatalf("conductortest: cannot listen: %v", err)
	}
	s.address = l.Addr().String()
	serving := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	s.serving = serving
	s.mu.Unlock()
	s.served.Go(func() { _ = serving.Serve(l) }) // returns when it is closed
}

func (s *Server) listen() (net.Listener, error) {
	if s.network != nil {
		return s.network.Listen("tcp", s.address)
	}
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", s.address)
}

// Down ends the server: connections break, and nothing listens at its address. Requests that have
// begun may still take effect. A server that is down stays down.
func (s *Server) Down() {
	s.mu.Lock()
	serving := s.serving
	s.serving = nil
	s.mu.Unlock()
	if serving != nil {
		_ = serving.Close() // only the listener can fail, and it is gone
	}
	s.served.Wait()
}

// Advance sets the clock forward, and lets the decider notice it.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	s.sweep()
}

// AdvanceToDue sets the clock forward to where the next task can be polled, and reports whether
// there is such a task in a workflow that has not ended.
func (s *Server) AdvanceToDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, queue := range s.queues {
		for _, t := range queue {
			if first.IsZero() || t.due.Before(first) {
				first = t.due
			}
		}
	}
	if wait := first.Sub(s.now()); !first.IsZero() && wait > 0 {
		s.ahead += wait
		s.sweep()
	}
	return !first.IsZero()
}

// now is the time of the fake.
func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

func (s *Server) id() string {
	s.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.ids)
}

// notify wakes the long polls.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Workflow returns a workflow with its tasks, as it is now; nil: there is none.
func (s *Server) Workflow(id string) *Workflow {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.byID[id]; w != nil {
		return w.copied(true)
	}
	return nil
}

// Workflows returns the workflows with a correlation id, in the order of their starts.
func (s *Server) Workflows(correlationID string) (found []*Workflow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workflows {
		if w.CorrelationID == correlationID {
			found = append(found, w.copied(true))
		}
	}
	return found
}

// Remove makes Conductor forget a workflow, as one does that has lost its database.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.byID[id]
	for _, t := range w.Tasks {
		s.dequeue(t)
		delete(s.tasks, t.TaskID)
	}
	delete(s.byID, id)
	s.workflows = slices.DeleteFunc(s.workflows, func(other *Workflow) bool { return other == w })
}

// Open returns how many tasks of workers wait in queues, and how many are in progress, in workflows
// that have not ended.
func (s *Server) Open() (waiting, inProgress int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workflows {
		for _, t := range w.Tasks {
			switch {
			case w.ended() || t.TaskType == kindJoin:
			case t.Status == Scheduled:
				waiting++
			case t.Status == InProgress:
				inProgress++
			}
		}
	}
	return waiting, inProgress
}

// Logs returns what workers have logged about a task.
func (s *Server) Logs(taskID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[taskID]; t != nil {
		return slices.Clone(t.logs)
	}
	return nil
}

// Calls returns how many requests of an operation have come, those with a fault too.
func (s *Server) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}
