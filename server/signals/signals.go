package signals

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/storage"
)

// DefaultPerMinute is how many signals a run may get in a minute (SIG-5).
const DefaultPerMinute = 60

// DefaultPolicyTimeout bounds one call of the external policy.
const DefaultPolicyTimeout = 2 * time.Second

// A decision is tried again while other events of the run wait for it and those that were admitted
// before still come first: for decideWithin, and frozenTries times if these take longer. On a slow
// disk one try takes seconds.
const (
	decideWithin = 10 * time.Second
	frozenTries  = 20
)

// fairTries are made while other events of the run are still taken, fewer if they take longer than
// fairTime. Then these events wait for the decision.
const (
	fairTries = 2
	fairTime  = time.Second
)

// longestPause bounds the pause between two tries.
const longestPause = 10 * time.Millisecond

// Node is the part of the replica that the service needs.
type Node interface {
	View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*replica.Reading, error)
	AppendFrozen(_ context.Context, _ *storage.Append, before ...storage.Operation) (replica.Appended, error)
	Freeze(runID string) (thaw func())
	Store() *storage.Store
	rpc.Runs
}

// Snapshots folds runs.
type Snapshots interface {
	// Snapshot returns the fold of at least the events that a view shows.
	Snapshot(*storage.View) (*run.Snapshot, error)
}

// Options configure the service. Node, Snapshots, Rules, Clock and Registry are required.
type Options struct {
	Node      Node
	Snapshots Snapshots
	// Rules returns the rules that events of a run must meet.
	Rules func(runID string) contract.Options
	// Roles are those that may send a type, where others than operators may (SIG-3).
	Roles map[string]auth.Roles
	// AcceptUnknown accepts types that the contract does not know, in runs that have not ended.
	AcceptUnknown bool
	// PerMinute is how many signals a run may get in a minute. Default: DefaultPerMinute.
	PerMinute int
	// PolicyURL is the address of the external policy; empty: none is asked.
	PolicyURL string
	// PolicyTimeout bounds one call of it. Default: DefaultPolicyTimeout.
	PolicyTimeout time.Duration
	// DialPolicy connects to it. Default: TCP.
	DialPolicy func(ctx context.Context, network, address string) (net.Conn, error)
	Clock      func() time.Time
	Registry   prometheus.Registerer
}

// Service is SignalService.
type Service struct {
	runlogv1.UnimplementedSignalServiceServer
	opts    Options
	node    Node
	policy  *policy // nil: none is asked
	metrics *metrics
	// operators counts the signals of callers that have a role for them, others those of callers
	// that have none, so that these cannot use up what a run may get.
	operators, others *limiter
	// attesters counts the calls of AttestStep, and attestations is their number.
	attesters    *limiter
	attestations atomic.Uint64
	// decisions lets one decision about a run be made at a time, and signals one call with a
	// signalId.
	decisions, signals keyedLocks
}

var _ runlogv1.SignalServiceServer = (*Service)(nil)

// New makes the service. It must be closed.
func New(opts Options) *Service {
	if opts.PerMinute == 0 {
		opts.PerMinute = DefaultPerMinute
	}
	if opts.PolicyTimeout == 0 {
		opts.PolicyTimeout = DefaultPolicyTimeout
	}
	s := &Service{
		opts: opts, node: opts.Node, metrics: newMetrics(opts.Registry),
		operators: newLimiter(opts.PerMinute, opts.Clock), others: newLimiter(opts.PerMinute, opts.Clock),
		attesters: newLimiter(opts.PerMinute, opts.Clock),
	}
	if opts.PolicyURL != "" {
		s.policy = newPolicy(opts.PolicyURL, opts.PolicyTimeout, opts.DialPolicy)
	}
	return s
}

// Close removes the metrics and closes the connections to the policy.
func (s *Service) Close() error {
	for _, m := range s.metrics.collectors() {
		s.opts.Registry.Unregister(m)
	}
	if s.policy != nil {
		s.policy.client.CloseIdleConnections()
	}
	return nil
}

// SendSignal decides a signal, or returns the decision that is recorded under its id (SIG-1, SIG-2,
// SIG-4).
func (s *Service) SendSignal(ctx context.Context, req *runlogv1.SendSignalRequest) (*runlogv1.SendSignalResponse, error) {
	sig, err := check(req)
	if err != nil {
		s.countRefused(err)
		return nil, err
	}
	sig.from(auth.From(ctx))
	// A repeat that comes while the first call is being decided waits for its decision.
	unlock, err := s.signals.lock(ctx, sig.runID+"\x00"+sig.id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	resp, err := s.answer(ctx, sig)
	if err != nil {
		s.countRefused(err)
		return nil, err
	}
	decision := metricRejected
	switch {
	case resp.Idempotent:
		decision = metricRepeated
	case resp.Decision == runlogv1.Decision_ACCEPTED:
		decision = metricAccepted
	}
	s.metrics.count(sig.signalType, decision)
	return resp, nil
}

// countRefused counts what is refused by the limits and the policy, and recorded nowhere.
func (s *Service) countRefused(err error) {
	var e *contract.Error
	if !errors.As(err, &e) {
		return
	}
	switch e.Reason {
	case contract.ReasonSignalTooLarge, contract.ReasonSignalRateLimited, contract.ReasonSignalPolicyUnavailable:
		s.metrics.refused.WithLabelValues(string(e.Reason)).Inc()
	}
}

// answer returns the recorded decision, or makes one.
func (s *Service) answer(ctx context.Context, sig *signal) (*runlogv1.SendSignalResponse, error) {
	resp, err := s.decidedBefore(ctx, sig)
	if resp != nil || err != nil {
		return resp, err
	}
	sig.permitted = sig.caller.May(s.rolesFor(sig.signalType))
	if err := s.limit(sig); err != nil {
		return nil, err
	}
	return s.decide(ctx, sig)
}

// rolesFor returns the roles that may send a type.
func (s *Service) rolesFor(signalType string) auth.Roles {
	if roles, ok := s.opts.Roles[signalType]; ok {
		return roles
	}
	return auth.RolesOf(runlogv1.Role_OPERATOR)
}

// limit refuses a signal beyond the rate of its run (SIG-5).
func (s *Service) limit(sig *signal) error {
	l := s.operators
	if !sig.permitted {
		l = s.others
	}
	delay := l.take(sig.runID, sig.id)
	if delay == 0 {
		return nil
	}
	return overLimit(sig.runID, "signals", delay)
}

func overLimit(runID, what string, delay time.Duration) error {
	return &contract.Error{Reason: contract.ReasonSignalRateLimited, RetryAfter: delay,
		Message:  rpc.Helpful(contract.ReasonSignalRateLimited, "run "+contract.Quote(runID)+" has had its "+what+" of this minute; nothing was stored"),
		Metadata: map[string]string{"run_id": runID}}
}

// errConflict means that an event of the run came between reading and deciding.
var errConflict = errors.New("signals: the run has changed")

// decide decides a signal against the state of its run (SIG-2). The policy is asked at most once.
// Meanwhile no lock is held and no run is frozen.
func (s *Service) decide(ctx context.Context, sig *signal) (resp *runlogv1.SendSignalResponse, err error) {
	for {
		var status run.Status
		err = s.untilStored(ctx, sig.runID, func() (err error) {
			resp, status, err = s.decideOnce(ctx, sig)
			return err
		})
		if resp != nil || err != nil {
			return resp, err
		}
		if err := s.ask(ctx, sig, status); err != nil {
			return nil, err
		}
	}
}

// untilStored tries to store a decision about a run until another error than errConflict comes of
// it, or none.
func (s *Service) untilStored(ctx context.Context, runID string, try func() error) error {
	begun, thaw := time.Now(), func() {}
	defer func() { thaw() }()
	var frozen time.Time // when the run was first frozen
	tries := 0           // since then
	for conflicts := 0; ; conflicts++ {
		if conflicts >= fairTries || conflicts > 0 && time.Since(begun) > fairTime {
			if frozen.IsZero() {
				frozen = time.Now()
			}
			next := s.node.Freeze(runID) // before the one before is over
			thaw()
			thaw = next
			tries++
		}
		err := try()
		switch {
		case !errors.Is(err, errConflict):
			return err
		case tries >= frozenTries && time.Since(frozen) > decideWithin:
			return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: rpc.OverloadDelay,
				Message: "other events of the run were stored first until the time was over; nothing was decided; retry"}
		}
		select {
		case <-time.After(rand.N(longestPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decideOnce tries to store a decision. Without a response and an error, the policy must be asked
// first; status is then that of the run.
func (s *Service) decideOnce(ctx context.Context, sig *signal) (_ *runlogv1.SendSignalResponse, status run.Status, err error) {
	unlock, err := s.decisions.lock(ctx, sig.runID)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	v, err := s.view(ctx, sig.runID)
	if err != nil {
		return nil, 0, err
	}
	at, err := s.read(v.View, sig)
	if err := errors.Join(err, v.Close()); err != nil {
		return nil, 0, err
	}
	if at.recorded != nil {
		return at.recorded, 0, nil
	}
	d := s.judge(&at, sig)
	if d.Reject == accept && s.policy != nil && sig.verdict == nil {
		// What may not be stored, such as a secret, goes to no other service either.
		_, err := s.event(sig, at, d)
		return nil, at.snapshot.Status, err
	}
	resp, err := s.store(ctx, sig, at, d)
	return resp, 0, err
}

// ask asks the external policy about a signal.
func (s *Service) ask(ctx context.Context, sig *signal, status run.Status) error {
	begun := time.Now()
	verdict, err := s.policy.ask(ctx, sig, status)
	s.metrics.policy.Observe(time.Since(begun).Seconds())
	if err != nil {
		return &contract.Error{Reason: contract.ReasonSignalPolicyUnavailable,
			Message:  rpc.Helpful(contract.ReasonSignalPolicyUnavailable, "the policy has not decided: "+err.Error()+"; nothing was stored"),
			Metadata: map[string]string{"run_id": sig.runID}}
	}
	sig.verdict = verdict
	return nil
}
