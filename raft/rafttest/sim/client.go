package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft/rafttest/history"
)

// caller is a host that calls nodes, each over a connection of its own.
type caller struct {
	world *world
	host  string
	conns []*grpc.ClientConn
}

func (w *world) newCaller(host string) (*caller, error) {
	c := &caller{world: w, host: host}
	for _, n := range w.nodes {
		conn, err := grpc.NewClient("passthrough:///"+n.host+grpcPort,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.net.dial(ctx, host, to) }),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *caller) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *caller) events(node int) runlogv1.EventServiceClient {
	return runlogv1.NewEventServiceClient(c.conns[node])
}

func (c *caller) projections(node int) runlogv1.ProjectionServiceClient {
	return runlogv1.NewProjectionServiceClient(c.conns[node])
}

func (c *caller) audits(node int) runlogv1.AuditServiceClient {
	return runlogv1.NewAuditServiceClient(c.conns[node])
}

// transfer asks a node to hand the leadership over, to whomever it likes.
func (c *caller) transfer(ctx context.Context, node int) error {
	_, err := runlogv1.NewClusterServiceClient(c.conns[node]).TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{})
	return err
}

// outcome is what a client may conclude from an error. One that no server has given says nothing.
func outcome(err error) history.Outcome {
	e := client.ErrorOf(status.Convert(err))
	if e.Reason == "" {
		return history.Outcome{}
	}
	return history.Failed(contract.Reason(e.Reason))
}

// sent are the events that clients have sent so far, for those who send them again.
type sent struct {
	mu     sync.Mutex
	events map[string][]*runlogv1.EventWrite // by run
	number int
}

func (s *sent) add(run string, e *runlogv1.EventWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[run] = append(s.events[run], e)
}

// again returns an event that was sent to a run; nil when none was.
func (s *sent) again(run string, rng *rand.Rand) *runlogv1.EventWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.events[run]; len(all) > 0 {
		return all[rng.IntN(len(all))]
	}
	return nil
}

// next returns a number that nobody else has.
func (s *sent) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return s.number
}
