package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/testbed/bubble"
)

// wantSeries wants lines of the metrics.
func (n *node) wantSeries(lines ...string) {
	n.t.Helper()
	text := "\n" + n.metricsText()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			n.t.Errorf("the metrics have not the line %s", line)
		}
	}
}

// TestSignalRolesSIG3: a caller without the role is rejected, and the rejection is recorded with
// its name. Where the policy lets producers send a type, they may. A caller of another tenant, and
// one without any role for signals, leave no trace.
func TestSignalRolesSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) {
			root = secured(o)
			o.Signals.Roles = map[string]auth.Roles{"CANCEL": auth.RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR)}
			o.Signals.PerMinute = 3
		})
		engine := n.bearing(n.token(root, "engine", []string{"tenant"}, runlogv1.Role_PRODUCER))
		ops := n.bearing(n.token(root, "ops", []string{"tenant"}, runlogv1.Role_OPERATOR))
		viewer := n.bearing(n.token(root, "viewer", []string{"tenant"}, runlogv1.Role_READER))
		foreign := n.bearing(n.token(root, "foreign", []string{"other"}, runlogv1.Role_OPERATOR))
		if _, err := n.events.AppendEvents(engine, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{newEvent("RunStarted")}}); err != nil {
			t.Fatal(err)
		}
		_, err := n.signals().SendSignal(viewer, signal("v-1", "PAUSE"))
		refused(t, err, contract.ReasonPermissionDenied)
		_, hidden := n.signals().SendSignal(foreign, signal("f-1", "PAUSE"))
		_, unknown := n.signals().SendSignal(ops, signal("f-1", "PAUSE", inRun("ruN")))
		refused(t, hidden, contract.ReasonRunNotFound)
		if got, want := status.Convert(hidden).Proto().String(), status.Convert(unknown).Proto().String(); got != strings.ReplaceAll(want, "ruN", "run") {
			t.Errorf("a run of another tenant: %s, one that does not exist: %s (SEC-4)", got, want)
		}
		for i := range 3 {
			wantEqual(t, "by an engine", outcome(n.sendAs(engine, signal(fmt.Sprint("e-", i), "PAUSE"))), "ROLE_DENIED")
		}
		_, err = n.signals().SendSignal(engine, signal("e-3", "PAUSE"))
		refused(t, err, contract.ReasonSignalRateLimited) // and operators have signals left
		wantEqual(t, "by an operator", outcome(n.sendAs(ops, signal("o-1", "PAUSE"))), "ACCEPTED")
		wantEqual(t, "of an operator's id", outcome(n.sendAs(engine, signal("o-1", "PAUSE"))), "ACCEPTED")
		wantEqual(t, "CANCEL by an engine", outcome(n.sendAs(engine, signal("e-4", "CANCEL"))), "ACCEPTED")

		reader := n.bearing(n.token(root, "reader", []string{"tenant"}, runlogv1.Role_READER))
		list, err := n.events.ListEvents(reader, &runlogv1.ListEventsRequest{RunId: "run"})
		if err != nil || len(list.Events) != 6 {
			t.Fatalf("the run has %v, error %v", list, err)
		}
		for i, want := range []string{1: "SignalRejected token:engine", 4: "SignalAccepted token:ops", 5: "SignalAccepted token:engine"} {
			if e := list.Events[i]; want != "" {
				p := parseObject(t, e.GetPayloadJson())
				if got := fmt.Sprint(e.EventType, " ", p["requestedBy"]); got != want || e.GetAppendedBy() != p["requestedBy"] {
					t.Errorf("event %d: %s appended by %s, want %s", i, got, e.GetAppendedBy(), want)
				}
			}
		}
	})
}

// TestSignalPolicySIG3: the external policy is asked before a signal is accepted, and only then.
// The run is read again after its answer. While the policy fails, nothing is stored, so that the
// same signal can be decided later.
func TestSignalPolicySIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var n *node
		var asked atomic.Int64
		hook := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			body, _ := io.ReadAll(r.Body)
			switch q := string(body); {
			case strings.Contains(q, `"signalId":"slow"`):
				n.append("run", newEvent("RunPaused"))
			case strings.Contains(q, `"reason":"fail"`):
				w.WriteHeader(http.StatusInternalServerError)
			case strings.Contains(q, `"reason":"no"`):
				_, _ = io.WriteString(w, `{"allow": false, "reason": "not on Fridays"}`)
				return
			}
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n = startNode(t, func(o *Options) {
			o.Signals.PolicyURL, o.Signals.PolicyTimeout, o.Signals.PerMinute = hook, patience, 4
		})
		because := func(reason string) func(*runlogv1.SendSignalRequest) {
			return func(r *runlogv1.SendSignalRequest) { r.Reason = reason }
		}
		n.append("run", newEvent("RunStarted"))
		for range 2 { // A retry does not count once more.
			_, err := n.signals().SendSignal(n.context(), signal("s-1", "PAUSE", because("fail")))
			refused(t, err, contract.ReasonSignalPolicyUnavailable)
		}
		wantEqual(t, "denied", outcome(n.send(signal("s-2", "PAUSE", because("no")))), "POLICY_DENIED")
		wantEqual(t, "after the run was paused", outcome(n.send(signal("slow", "PAUSE"))), "ALREADY_PAUSED")
		wantEqual(t, "calls", asked.Load(), 4)
		wantEqual(t, "rejected by the table", outcome(n.send(signal("s-3", "PAUSE"))), "ALREADY_PAUSED")
		wantEqual(t, "repeated", outcome(n.send(signal("s-2", "PAUSE"))), "POLICY_DENIED")
		wantEqual(t, "calls", asked.Load(), 4)
		wantEqual(t, "the first one again", outcome(n.send(signal("s-1", "RESUME"))), "ACCEPTED")
		var reasons []string
		for _, e := range n.list("run") {
			if e.EventType == "SignalRejected" {
				p := parseObject(t, e.GetPayloadJson())
				reasons = append(reasons, fmt.Sprint(p["decidedBy"], " ", p["reason"]))
			}
		}
		if got := strings.Join(reasons, "; "); !strings.HasPrefix(got, "policy POLICY_DENIED: not on Fridays; runlog ALREADY_PAUSED: ") {
			t.Errorf("reasons %s", got)
		}
		wantEqual(t, "calls measured", n.metric("runlog_signals_policy_seconds_count"), 5)
		n.wantSeries(`runlog_signals_refused_total{reason="SIGNAL_POLICY_UNAVAILABLE"} 2`)
	})
}

// TestSlowPolicySIG3: a policy that hangs holds up no other signal than its own, and no append.
func TestSlowPolicySIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		waiting, released := make(chan struct{}), make(chan struct{})
		hook := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"signalId":"slow"`) {
				close(waiting)
				<-released
			}
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n := startNode(t, func(o *Options) { o.Signals.PolicyURL, o.Signals.PolicyTimeout = hook, patience })
		n.append("run", newEvent("RunStarted"))
		var slow sync.WaitGroup
		slow.Go(func() { wantEqual(t, "the slow one", outcome(n.send(signal("slow", "PAUSE"))), "ALREADY_PAUSED") })
		<-waiting
		n.append("run", newEvent("StepStarted", step("a")))
		wantEqual(t, "another one", outcome(n.send(signal("quick", "PAUSE"))), "ACCEPTED")
		close(released)
		slow.Wait()
	})
}

// TestSignalLimitsSIG5: a signal that is too large and one beyond the rate of its run are refused
// and counted, and are no events. A repeat of a decided signal does not count.
func TestSignalLimitsSIG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.append("other", newEvent("RunStarted"))
		large := func(size int) func(*runlogv1.SendSignalRequest) {
			return func(r *runlogv1.SendSignalRequest) {
				r.Parameters = &structpb.Struct{Fields: map[string]*structpb.Value{"p": structpb.NewStringValue(strings.Repeat("x", size))}}
			}
		}
		const frame = len("s-0") + len("UPDATE_PARAMS") + len(`{"p":""}`)
		wantEqual(t, "64 KiB", outcome(n.send(signal("s-0", "UPDATE_PARAMS", large(64<<10-frame)))), "ACCEPTED")
		_, err := n.signals().SendSignal(n.context(), signal("s-1", "UPDATE_PARAMS", large(64<<10-frame+1)))
		refused(t, err, contract.ReasonSignalTooLarge)
		for i := range 59 {
			n.send(signal(fmt.Sprint("r-", i), "RESUME"))
		}
		for range 3 {
			n.send(signal("s-0", "UPDATE_PARAMS"))
			_, err := n.signals().SendSignal(n.context(), signal("s-2", "PAUSE"))
			if e := refused(t, err, contract.ReasonSignalRateLimited); e.retryAfter <= 0 || e.retryAfter.Minutes() > 1 {
				t.Errorf("delay %v", e.retryAfter)
			}
		}
		wantEqual(t, "another run", outcome(n.send(signal("s-2", "PAUSE", inRun("other")))), "ACCEPTED")
		wantEqual(t, "events", len(n.list("run")), 61)
		n.wantSeries(
			`runlog_signals_refused_total{reason="SIGNAL_RATE_LIMITED"} 3`,
			`runlog_signals_refused_total{reason="SIGNAL_TOO_LARGE"} 1`,
			`runlog_signals_total{decision="accepted",type="UPDATE_PARAMS"} 1`,
			`runlog_signals_total{decision="repeated",type="UPDATE_PARAMS"} 3`,
			`runlog_signals_total{decision="rejected",type="RESUME"} 59`,
			`runlog_signals_total{decision="accepted",type="PAUSE"} 1`,
		)
	})
}

// TestSignalFloodSIG5: ten thousand signals at once to one run leave as many events as a run may
// have signals, and other runs as they are.
func TestSignalFloodSIG5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		// Not in parallel: it takes all processors, and the clusters of other tests would change
		// their leaders.
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.append("other", newEvent("RunStarted"))
		const signals, callers = 10_000, 200
		var flood sync.WaitGroup
		var next, decided, limited atomic.Int64
		for range callers {
			flood.Go(func() {
				for i := next.Add(1); i <= signals; i = next.Add(1) {
					switch _, err := n.signals().SendSignal(n.context(), signal(fmt.Sprint("s-", i), "WAVE")); {
					case err == nil:
						decided.Add(1)
					case reasonIn(status.Convert(err)) == contract.ReasonSignalRateLimited:
						limited.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		for i := range 10 {
			n.append("other", newEvent("StepStarted", step(fmt.Sprint(i))))
		}
		wantEqual(t, "a signal to another run", outcome(n.send(signal("s", "PAUSE", inRun("other")))), "ACCEPTED")
		flood.Wait()
		if decided.Load() != 60 || limited.Load() != signals-60 {
			t.Errorf("%d decided, %d over the limit", decided.Load(), limited.Load())
		}
		wantEqual(t, "events", len(n.list("run")), 61)
		n.wantSeries(`runlog_signals_total{decision="rejected",type="other"} 60`)
	})
}

// TestSignalOptions: options that make no sense stop the start.
func TestSignalOptions(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for name, o := range map[string]SignalOptions{
			"Roles":     {Roles: map[string]auth.Roles{"PAUSE": auth.AllRoles}},
			"PolicyURL": {PolicyURL: "policy"},
		} {
			opts := testOptions(t)
			opts.Signals = o
			if err := errors.Join(opts.Validate()); err == nil || !strings.Contains(err.Error(), "Options.Signals."+name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
