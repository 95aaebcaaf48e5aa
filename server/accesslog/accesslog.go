// Package accesslog appends administrative and refused calls to a run of each day, which auditors
// read like any run (SEC-7).
//
//	chain ── Allowed, before the call ─┐
//	      ── Denied, after a refusal ──┼─► event AccessDecided of run runlog.access/<day>
//	             └─► anonymous ────────┤                       ▲
//	                 (each minute)     └─► journal ────────────┘ later, by Run
//	                                       (no leader, or its disk is full)
//
// The journal is a file of the node. It takes refused calls, and the calls that an operator needs
// when nothing can be appended (SEC-13). Invariants:
//
//   - An answer leaves after its event is in the replicated log or in the journal, on stable
//     storage; but refusals of callers without an identity are counted (SEC-11).
//   - An event has one key, which is made with the call. However often it is tried directly and
//     from the journal, the log has it once.
//   - Events of the journal are appended in their order. While it has one, the next follow there.
package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	"runlog/proto/contract/secrets"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
)

const (
	// EventType is the type of the events.
	EventType = "AccessDecided"

	// A client can cause any number of refusals. Those beyond deniedASecond are counted, and the
	// next event says how many.
	deniedASecond = 10
	deniedBurst   = 100

	tries       = 3
	appendAtAll = 5 * time.Second // the longest that a call waits for its event
	// ownAfter is how long a call waits that the journal takes, and lateAgain the pause between
	// attempts to empty the journal.
	ownAfter  = time.Second
	lateAgain = time.Second
	maxText   = 256 // bytes of a text of a caller
	// maxRequest bounds the fields of a request and its answer, in bytes. As JSON, six times as
	// many fit into the payload of an event.
	maxRequest = 8 << 10
)

// Options configure a Log. All are required.
type Options struct {
	// Append appends events as rpc.AccessIdentity, at the leader.
	Append func(context.Context, *runlogv1.AppendEventsRequest) error
	Node   string
	// FS has the journal, at Path. Cluster is the id of the cluster that its calls belong to.
	FS         vfs.FS
	Path       string
	Cluster    string
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Log is the access log of a node. Close ends it, after its calls and Run.
type Log struct {
	opts       Options
	journal    *journal
	added      chan struct{} // has room for one; the journal may have entries
	anonymous  anonymous
	denied     *rate.Limiter
	suppressed atomic.Int64 // refusals since the last event of one
	lost       prometheus.Counter
}

// Open opens the access log of a node, with what its journal has from before.
func Open(opts Options) (*Log, error) {
	j, dropped, err := openJournal(opts.FS, opts.Path, opts.Cluster)
	if err != nil {
		return nil, err
	}
	if dropped > 0 {
		opts.Logger.Warn("leaving out torn or foreign lines of the own access log", "file", opts.Path, "lines", dropped)
	}
	l := &Log{opts: opts, journal: j, added: make(chan struct{}, 1), denied: rate.NewLimiter(deniedASecond, deniedBurst)}
	l.added <- struct{}{}
	l.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "runlog_access_log_lost_total", Help: "Refused calls that could not be recorded in the access log.",
	})
	opts.Registerer.MustRegister(l.lost)
	return l, nil
}

// Close puts what was counted since the last minute into the journal, and closes it.
func (l *Log) Close() error {
	for _, e := range l.anonymous.take() {
		l.ifRecorded(e, l.journal.add(e, maxDeniedJournal))
	}
	return l.journal.close()
}

// entry is an event before it is in the replicated log.
type entry struct {
	Cluster  string    `json:"cluster"`
	ID       string    `json:"id"` // makes the key unique
	CalledAt time.Time `json:"calledAt"`
	Decision *decision `json:"decision"`
}

// lateDecision is the payload of an event that was in the journal.
type lateDecision struct {
	*decision
	Late     bool      `json:"late"`
	CalledAt time.Time `json:"calledAt"`
}

// decision is the payload of an event.
type decision struct {
	Identity   string `json:"identity,omitempty"`
	TokenID    string `json:"tokenId,omitempty"` // of the identity
	Address    string `json:"address"`
	Node       string `json:"node"`
	Method     string `json:"method"`
	Decision   string `json:"decision"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	Suppressed int64  `json:"suppressed,omitempty"`
	// Count is how many refused calls without an identity came from the address in a minute.
	Count int64 `json:"count,omitempty"`
	// Request and Answer have the fields that the policy of the method names.
	Request map[string]string `json:"request,omitempty"`
	Answer  map[string]string `json:"answer,omitempty"`
}

// Allowed records an administrative call that is about to be made. After an error the call must not
// be made.
func (l *Log) Allowed(ctx context.Context, c rpc.Call) (err error) {
	ctx = context.WithoutCancel(ctx) // The call may end meanwhile: the event stays.
	if e := l.entry(c, "ALLOWED"); c.Emergency {
		err = l.recordAtLeast(ctx, e, maxJournal)
	} else {
		err = l.append(ctx, e, e.Decision)
	}
	if err != nil {
		return notRecorded(c, err)
	}
	return nil
}

// Done records a call that has succeeded.
func (l *Log) Done(ctx context.Context, c rpc.Call) error {
	if err := l.recordAtLeast(context.WithoutCancel(ctx), l.entry(c, "DONE"), maxJournal); err != nil {
		l.opts.Logger.Warn("cannot record a call in the access log", "method", c.Method, "err", err)
		return notRecorded(c, err)
	}
	return nil
}

// notRecorded returns the error of a call that was not made. The reason is that of the cause, but
// for one that leaves open whether the event is stored: the call may be made again.
func notRecorded(c rpc.Call, err error) error {
	st := status.Convert(rpc.Status(err))
	why := fmt.Sprintf("%s was not done, because it could not be recorded in the access log: %s", c.Method, st.Message())
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return &contract.Error{Reason: contract.ReasonNoLeader, Message: why}
	case codes.ResourceExhausted: // with the delay
		full := st.Proto()
		full.Message = why
		return status.FromProto(full).Err()
	default:
		return status.Error(codes.Internal, why)
	}
}

// Denied records a refused call, or counts it if its caller has no identity.
func (l *Log) Denied(ctx context.Context, c rpc.Call, reason string, err error) {
	if c.Identity != nil && !l.denied.Allow() {
		l.suppressed.Add(1)
		return
	}
	e := l.entry(c, "DENIED")
	e.Decision.Reason, e.Decision.Message = reason, clip(status.Convert(err).Message())
	if c.Identity == nil {
		l.anonymous.add(e)
		return
	}
	e.Decision.Suppressed = l.suppressed.Swap(0)
	if !l.recordDenied(context.WithoutCancel(ctx), e) {
		l.suppressed.Add(e.Decision.Suppressed + 1)
	}
}

// recordDenied reports whether it has recorded an event of refused calls.
func (l *Log) recordDenied(ctx context.Context, e *entry) bool {
	return l.ifRecorded(e, l.recordAtLeast(ctx, e, maxDeniedJournal))
}

// ifRecorded reports whether an event of refused calls is recorded, and tells operators if not.
func (l *Log) ifRecorded(e *entry, err error) bool {
	if err != nil {
		l.lost.Inc()
		l.opts.Logger.Warn("cannot record a refused call in the access log", "method", e.Decision.Method, "err", err)
	}
	return err == nil
}

// Run appends the events of the journal, and what was counted in each minute, until ctx ends.
func (l *Log) Run(ctx context.Context) {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() {
		minute := time.NewTicker(anonymousEvery)
		defer minute.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-minute.C:
			}
			for _, e := range l.anonymous.take() {
				l.recordDenied(ctx, e)
			}
		}
	})
	l.deliverAll(ctx)
}

// recordAtLeast appends an event, or else puts it into the journal, which may then have so many
// bytes.
func (l *Log) recordAtLeast(ctx context.Context, e *entry, most int64) error {
	if l.journal.empty() {
		soon, cancel := context.WithTimeout(ctx, ownAfter)
		defer cancel()
		err := l.append(soon, e, e.Decision)
		if err == nil {
			return nil
		}
		l.opts.Logger.Warn("cannot append to the access log; recording at this node", "file", l.opts.Path, "err", err)
	}
	if err := l.journal.add(e, most); err != nil {
		return &contract.Error{Reason: contract.ReasonNoLeader, Message: err.Error()}
	}
	select {
	case l.added <- struct{}{}:
	default:
	}
	return nil
}

// deliverAll appends the events of the journal, until ctx ends.
func (l *Log) deliverAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.added:
		}
		if n := l.deliver(ctx); n > 0 {
			l.opts.Logger.Info("the access log has the calls of the node's own one", "calls", n)
		}
	}
}

// deliver empties the journal, and returns how many events it had.
func (l *Log) deliver(ctx context.Context) (n int) {
	for {
		for e := l.journal.from(n); e != nil; e = l.journal.from(n) {
			if err := l.append(ctx, e, lateDecision{e.Decision, true, e.CalledAt}); err == nil {
				n++
			} else if !l.pause(ctx, err) {
				return 0
			}
		}
		if removed, err := l.journal.remove(n); removed {
			return n
		} else if err != nil && !l.pause(ctx, err) {
			return 0
		}
	}
}

// pause waits before the next attempt to empty the journal. It returns false if ctx ends.
func (l *Log) pause(ctx context.Context, err error) bool {
	if c := status.Code(rpc.Status(err)); c != codes.Unavailable && c != codes.DeadlineExceeded && c != codes.ResourceExhausted && ctx.Err() == nil {
		l.opts.Logger.Warn("cannot append the node's own access log; retrying", "file", l.opts.Path, "err", err)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lateAgain):
		return true
	}
}

func (l *Log) entry(c rpc.Call, verdict string) *entry {
	return &entry{ID: uuid.NewString(), CalledAt: l.opts.Clock().UTC(), Decision: l.decision(c, verdict)}
}

func (l *Log) decision(c rpc.Call, verdict string) *decision {
	d := &decision{Address: clip(c.Address), Node: l.opts.Node, Method: clip(c.Method), Decision: verdict}
	if c.Identity != nil {
		d.Identity, d.TokenID = clip(c.Identity.Name), c.Identity.TokenID
	}
	room := maxRequest
	d.Request = fieldsOf(c.Request, &room)
	d.Answer = fieldsOf(c.Answer, &room)
	return d
}

// fieldsOf returns fields for the payload, as long as there is room.
func fieldsOf(list []rpc.RecordedField, room *int) map[string]string {
	if len(list) == 0 {
		return nil
	}
	fields := map[string]string{}
	for _, f := range list {
		text := clipTo(f.Text, *room)
		*room -= len(text)
		fields[f.Name] = text
	}
	return fields
}

// append appends an event with a payload.
func (l *Log) append(ctx context.Context, e *entry, payload any) error {
	ctx, cancel := context.WithTimeout(ctx, appendAtAll)
	defer cancel()
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	run := rpc.AccessRuns + e.CalledAt.Format(time.DateOnly)
	req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{
		EventType: EventType, RunId: run,
		TenantId: rpc.AccessTenant, ProjectId: rpc.AccessTenant, EnvironmentId: rpc.AccessTenant,
		PlanId: "runlog.access", PlanVersion: "1",
		// The step makes the key unique.
		StepId: e.ID, LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(e.CalledAt), EmittedBy: l.opts.Node, ContractVersion: contract.Line2.String(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: text},
	}}}
	for range tries {
		if err = l.opts.Append(ctx, req); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// clip shortens a text of a caller, which may be as long as a header, and cuts it before what looks
// like a secret: some callers put their token in a path.
func clip(s string) string { return clipTo(s, maxText) }

// clipTo is clip for another number of bytes.
func clipTo(s string, most int) string {
	if kind, from := secrets.Find([]byte(s)); kind != "" {
		s = s[:min(from, most/2)] + "(" + string(kind) + ", not recorded)"
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
