// Package accesslog appends administrative and refused calls to a run of each day, which auditors
// read like any run (SEC-7).
//
//	chain ── Allowed, before the call ─┐
//	      ── Denied, after a refusal ──┴─► event AccessDecided of run runlog.access/<day>
package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

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
	maxText     = 256             // bytes of a text of a caller
	// maxRequest bounds the fields of a request, in bytes. As JSON, six times as many fit into the
	// payload of an event.
	maxRequest = 8 << 10
)

// Options configure a Log. All are required.
type Options struct {
	// Append appends events as rpc.AccessIdentity, at the leader.
	Append     func(context.Context, *runlogv1.AppendEventsRequest) error
	Node       string
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Log is the access log of a node.
type Log struct {
	opts       Options
	denied     *rate.Limiter
	suppressed atomic.Int64 // refusals since the last event of one
	lost       prometheus.Counter
}

// New makes the access log of a node.
func New(opts Options) *Log {
	l := &Log{opts: opts, denied: rate.NewLimiter(deniedASecond, deniedBurst)}
	l.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "runlog_access_log_lost_total", Help: "Refused calls that could not be appended to the access log.",
	})
	opts.Registerer.MustRegister(l.lost)
	return l
}

// decision is the payload of an event.
type decision struct {
	Identity   string `json:"identity,omitempty"`
	Address    string `json:"address"`
	Node       string `json:"node"`
	Method     string `json:"method"`
	Decision   string `json:"decision"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	Suppressed int64  `json:"suppressed,omitempty"`
	// Request has the fields that the policy of the method names.
	Request map[string]string `json:"request,omitempty"`
}

// Allowed appends an administrative call that is about to be made. After an error the call must not
// be made.
func (l *Log) Allowed(ctx context.Context, c rpc.Call) error {
	if err := l.append(ctx, l.decision(c, "ALLOWED")); err != nil {
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

// Denied appends a refused call.
func (l *Log) Denied(ctx context.Context, c rpc.Call, reason string, err error) {
	if !l.denied.Allow() {
		l.suppressed.Add(1)
		return
	}
	d := l.decision(c, "DENIED")
	d.Reason, d.Message, d.Suppressed = reason, clip(status.Convert(err).Message()), l.suppressed.Swap(0)
	if err := l.append(ctx, d); err != nil {
		l.suppressed.Add(d.Suppressed + 1)
		l.lost.Inc()
		l.opts.Logger.Warn("cannot record a refused call in the access log", "method", c.Method, "err", err)
	}
}

func (l *Log) decision(c rpc.Call, verdict string) *decision {
	d := &decision{Address: clip(c.Address), Node: l.opts.Node, Method: clip(c.Method), Decision: verdict}
	if c.Identity != nil {
		d.Identity = clip(c.Identity.Name)
	}
	room := maxRequest
	for _, f := range c.Request {
		if d.Request == nil {
			d.Request = map[string]string{}
		}
		text := clipTo(f.Text, room)
		room -= len(text)
		d.Request[f.Name] = text
	}
	return d
}

// append appends one event. The call that it is about may end meanwhile: the event stays.
func (l *Log) append(ctx context.Context, d *decision) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendAtAll)
	defer cancel()
	payload, err := json.Marshal(d)
	if err != nil {
		return err
	}
	now := l.opts.Clock().UTC()
	run := rpc.AccessRuns + now.Format(time.DateOnly)
	req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{
		EventType: EventType, RunId: run,
		TenantId: rpc.AccessTenant, ProjectId: rpc.AccessTenant, EnvironmentId: rpc.AccessTenant,
		PlanId: "runlog.access", PlanVersion: "1",
		// The step makes the key unique.
		StepId: uuid.NewString(), LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(now), EmittedBy: l.opts.Node, ContractVersion: contract.Line2.String(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: payload},
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
