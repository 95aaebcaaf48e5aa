package join

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/server/cluster/admission"
	"runlog/storage"
	"runlog/storage/machine/join"
)

const (
	// admissionLasts is more than a node takes to receive the state of its cluster.
	admissionLasts = 24 * time.Hour
	// refusalsASecond and refusalsAtOnce bound how many refused tokens make a leader confirm its
	// leadership.
	refusalsASecond, refusalsAtOnce = 5, 20
	// tellStep is the interval at which the leader logs refusals.
	tellStep = 10 * time.Second
)

// Node is what the gate needs of the replica.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ReadIndex(context.Context) error
	Store() *storage.Store
}

// Options of a gate. All are required.
type Options struct {
	Clock  func() time.Time
	Logger *slog.Logger
}

// Gate admits nodes by join tokens and invitations.
type Gate struct {
	opts Options
	node atomic.Pointer[Node] // nil: the node does not take part yet
	late *rate.Limiter

	mu   sync.Mutex
	told time.Time
}

var _ admission.Gate = (*Gate)(nil)

// New returns a gate.
func New(opts Options) *Gate {
	return &Gate{opts: opts, late: rate.NewLimiter(refusalsASecond, refusalsAtOnce)}
}

// Open lets the gate use the replica. Before, it admits no node.
func (g *Gate) Open(node Node) { g.node.Store(&node) }

// The refusals of a joining node. None says anything about the cluster.
var (
	errNoToken = status.Error(codes.Unauthenticated, "a node joins this cluster with a join token, or after an invitation: make a token on a member "+
		"(runlog cluster token create) and start the node with --join-token-file, or invite it (runlog cluster add)")
	errCrowd = status.Error(codes.ResourceExhausted, "too many join tokens were refused within a second; try again")
	errEarly = status.Error(codes.Unavailable, "the node does not take part in its cluster now; try again")
)

func refused(why join.Why) error {
	return status.Error(codes.PermissionDenied, (&join.RefusedError{Why: why}).Error()+
		": make another on a member (runlog cluster token create), and start the node with it (--join-token-file)")
}

// Admitted implements admission.Gate.
func (g *Gate) Admitted(raftID string) bool {
	node := g.node.Load()
	if node == nil {
		return false
	}
	ends, err := join.AdmittedUntil((*node).Store(), raftID)
	return err == nil && ends > g.opts.Clock().UnixNano()
}

// Check implements admission.Gate.
func (g *Gate) Check(ctx context.Context, raftID, token string) error {
	open := g.node.Load()
	if open == nil {
		return errEarly
	}
	node := *open
	why, err := g.judge(node, raftID, token)
	switch {
	case err != nil || why == "":
		return err
	case token == "":
		g.tell(raftID, "it has no join token")
		return errNoToken
	case !g.late.Allow():
		return errCrowd
	}
	// A leader that was just elected may not have applied the token yet, and a deposed one does not
	// know.
	if node.ReadIndex(ctx) != nil {
		return errEarly
	}
	if why, err = g.judge(node, raftID, token); err != nil || why == "" {
		return err
	}
	g.tell(raftID, "its join token "+string(why))
	return refused(why)
}

// judge returns why a node may not become a member; empty: it may.
func (g *Gate) judge(node Node, raftID, token string) (join.Why, error) {
	if g.Admitted(raftID) {
		return "", nil
	}
	hash, ok := ParseToken(token)
	if !ok {
		return join.Unknown, nil
	}
	t, err := join.TokenByHash(node.Store(), hash)
	if err != nil || t == nil {
		return join.Unknown, err
	}
	return t.Fault(g.opts.Clock().UnixNano()), nil
}

// tell logs a refusal, but not each of many.
func (g *Gate) tell(raftID, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.opts.Clock(); now.Sub(g.told) >= tellStep {
		g.told = now
		g.opts.Logger.Warn("node refused; it may not join", "raft", raftID, "why", why)
	}
}

// Admit implements admission.Gate.
func (g *Gate) Admit(ctx context.Context, raftID, token string) error {
	if g.Admitted(raftID) {
		return nil
	}
	hash, _ := ParseToken(token)
	err := g.execute(ctx)(join.UseToken(hash, raftID, admissionLasts))
	if no, ok := errors.AsType[*join.RefusedError](err); ok {
		g.tell(raftID, "its join token "+string(no.Why))
		return refused(no.Why)
	}
	return err
}

// Invite implements admission.Gate.
func (g *Gate) Invite(ctx context.Context, raftID string) error {
	return g.execute(ctx)(join.Admit(raftID, admissionLasts))
}

// End implements admission.Gate.
func (g *Gate) End(ctx context.Context, raftID string) error {
	if !g.Admitted(raftID) {
		return nil
	}
	return g.execute(ctx)(join.EndAdmission(raftID))
}

// execute returns the function that proposes an operation and waits for its effect.
func (g *Gate) execute(ctx context.Context) func(storage.Operation, error) error {
	return func(op storage.Operation, err error) error {
		cmd, err := storage.EncodeOne(op, err)
		if err != nil {
			return err
		}
		node := g.node.Load()
		if node == nil {
			return errEarly
		}
		_, err = (*node).Execute(ctx, cmd)
		return err
	}
}
