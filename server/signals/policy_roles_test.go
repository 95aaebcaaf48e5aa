package signals_test

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
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// wantSeries wants lines of the metrics.
func wantSeries(n *servertest.Node, lines ...string) {
	n.T.Helper()
	text := "\n" + n.MetricsText()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			n.T.Errorf("the metrics have not the line %s", line)
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
		n := servertest.Start(t, func(o *server.Options) {
			root = servertest.Secured(o)
			o.Signals.Roles = map[string]auth.Roles{"CANCEL": auth.RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR)}
			o.Signals.PerMinute = 3
		})
		engine := n.Bearing(n.Token(root, "engine", []string{"tenant"}, runlogv1.Role_PRODUCER))
		ops := n.Bearing(n.Token(root, "ops", []string{"tenant"}, runlogv1.Role_OPERATOR))
		viewer := n.Bearing(n.Token(root, "viewer", []string{"tenant"}, runlogv1.Role_READER))
		foreign := n.Bearing(n.Token(root, "foreign", []string{"other"}, runlogv1.Role_OPERATOR))
		if _, err := n.Events.AppendEvents(engine, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}}); err != nil {
			t.Fatal(err)
		}
		_, err := signals(n).SendSignal(viewer, signal("v-1", "PAUSE"))
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		_, hidden := signals(n).SendSignal(foreign, signal("f-1", "PAUSE"))
		_, unknown := signals(n).SendSignal(ops, signal("f-1", "PAUSE", inRun("ruN")))
		servertest.Refused(t, hidden, contract.ReasonRunNotFound)
		if got, want := status.Convert(hidden).Proto().String(), status.Convert(unknown).Proto().String(); got != strings.ReplaceAll(want, "ruN", "run") {
			t.Errorf("a run of another tenant: %s, one that does not exist: %s (SEC-4)", got, want)
		}
		for i := range 3 {
			servertest.WantEqual(t, "by an engine", outcome(sendAs(engine, n, signal(fmt.Sprint("e-", i), "PAUSE"))), "ROLE_DENIED")
		}
		_, err = signals(n).SendSignal(engine, signal("e-3", "PAUSE"))
		// Operators have signals left.
		servertest.Refused(t, err, contract.ReasonSignalRateLimited)
		servertest.WantEqual(t, "by an operator", outcome(sendAs(ops, n, signal("o-1", "PAUSE"))), "ACCEPTED")
		servertest.WantEqual(t, "of an operator's id", outcome(sendAs(engine, n, signal("o-1", "PAUSE"))), "ACCEPTED")
		servertest.WantEqual(t, "CANCEL by an engine", outcome(sendAs(engine, n, signal("e-4", "CANCEL"))), "ACCEPTED")

		reader := n.Bearing(n.Token(root, "reader", []string{"tenant"}, runlogv1.Role_READER))
		list, err := n.Events.ListEvents(reader, &runlogv1.ListEventsRequest{RunId: "run"})
		if err != nil || len(list.Events) != 6 {
			t.Fatalf("the run has %v, error %v", list, err)
		}
		for i, want := range []string{1: "SignalRejected token:engine", 4: "SignalAccepted token:ops", 5: "SignalAccepted token:engine"} {
			if e := list.Events[i]; want != "" {
				p := servertest.ParseObject(t, e.GetPayloadJson())
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
		var n *servertest.Node
		var asked atomic.Int64
		hook := servertest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			body, _ := io.ReadAll(r.Body)
			switch q := string(body); {
			case strings.Contains(q, `"signalId":"slow"`):
				n.Append("run", servertest.NewEvent("RunPaused"))
			case strings.Contains(q, `"reason":"fail"`):
				w.WriteHeader(http.StatusInternalServerError)
			case strings.Contains(q, `"reason":"no"`):
				_, _ = io.WriteString(w, `{"allow": false, "reason": "not on Fridays"}`)
				return
			}
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n = servertest.Start(t, func(o *server.Options) {
			o.Signals.PolicyURL, o.Signals.PolicyTimeout, o.Signals.PerMinute = hook, servertest.Patience, 4
		})
		because := func(reason string) func(*runlogv1.SendSignalRequest) {
			return func(r *runlogv1.SendSignalRequest) { r.Reason = reason }
		}
		n.Append("run", servertest.NewEvent("RunStarted"))
		for range 2 { // A retry does not count once more.
			_, err := signals(n).SendSignal(n.Context(), signal("s-1", "PAUSE", because("fail")))
			servertest.Refused(t, err, contract.ReasonSignalPolicyUnavailable)
		}
		servertest.WantEqual(t, "denied", outcome(send(n, signal("s-2", "PAUSE", because("no")))), "POLICY_DENIED")
		servertest.WantEqual(t, "after the run was paused", outcome(send(n, signal("slow", "PAUSE"))), "ALREADY_PAUSED")
		servertest.WantEqual(t, "calls", asked.Load(), 4)
		servertest.WantEqual(t, "rejected by the table", outcome(send(n, signal("s-3", "PAUSE"))), "ALREADY_PAUSED")
		servertest.WantEqual(t, "repeated", outcome(send(n, signal("s-2", "PAUSE"))), "POLICY_DENIED")
		servertest.WantEqual(t, "calls", asked.Load(), 4)
		servertest.WantEqual(t, "the first one again", outcome(send(n, signal("s-1", "RESUME"))), "ACCEPTED")
		var reasons []string
		for _, e := range n.List("run") {
			if e.EventType == "SignalRejected" {
				p := servertest.ParseObject(t, e.GetPayloadJson())
				reasons = append(reasons, fmt.Sprint(p["decidedBy"], " ", p["reason"]))
			}
		}
		if got := strings.Join(reasons, "; "); !strings.HasPrefix(got, "policy POLICY_DENIED: not on Fridays; runlog ALREADY_PAUSED: ") {
			t.Errorf("reasons %s", got)
		}
		servertest.WantEqual(t, "calls measured", n.Metric("runlog_signals_policy_seconds_count"), 5)
		wantSeries(n, `runlog_signals_refused_total{reason="SIGNAL_POLICY_UNAVAILABLE"} 2`)
	})
}

// TestSlowPolicySIG3: a policy that hangs holds up no other signal than its own, and no append.
func TestSlowPolicySIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		waiting, released := make(chan struct{}), make(chan struct{})
		hook := servertest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"signalId":"slow"`) {
				close(waiting)
				<-released
			}
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n := servertest.Start(t, func(o *server.Options) { o.Signals.PolicyURL, o.Signals.PolicyTimeout = hook, servertest.Patience })
		n.Append("run", servertest.NewEvent("RunStarted"))
		var slow sync.WaitGroup
		slow.Go(func() {
			servertest.WantEqual(t, "the slow one", outcome(send(n, signal("slow", "PAUSE"))), "ALREADY_PAUSED")
		})
		<-waiting
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a")))
		servertest.WantEqual(t, "another one", outcome(send(n, signal("quick", "PAUSE"))), "ACCEPTED")
		close(released)
		slow.Wait()
	})
}

// TestSignalLimitsSIG5: a signal that is too large and one beyond the rate of its run are refused
// and counted, and are no events. A repeat of a decided signal does not count.
func TestSignalLimitsSIG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Append("other", servertest.NewEvent("RunStarted"))
		large := func(size int) func(*runlogv1.SendSignalRequest) {
			return func(r *runlogv1.SendSignalRequest) {
				r.Parameters = &structpb.Struct{Fields: map[string]*structpb.Value{"p": structpb.NewStringValue(strings.Repeat("x", size))}}
			}
		}
		const frame = len("s-0") + len("UPDATE_PARAMS") + len(`{"p":""}`)
		servertest.WantEqual(t, "64 KiB", outcome(send(n, signal("s-0", "UPDATE_PARAMS", large(64<<10-frame)))), "ACCEPTED")
		_, err := signals(n).SendSignal(n.Context(), signal("s-1", "UPDATE_PARAMS", large(64<<10-frame+1)))
		servertest.Refused(t, err, contract.ReasonSignalTooLarge)
		for i := range 59 {
			send(n, signal(fmt.Sprint("r-", i), "RESUME"))
		}
		for range 3 {
			send(n, signal("s-0", "UPDATE_PARAMS"))
			_, err := signals(n).SendSignal(n.Context(), signal("s-2", "PAUSE"))
			if e := servertest.Refused(t, err, contract.ReasonSignalRateLimited); e.RetryAfter <= 0 || e.RetryAfter.Minutes() > 1 {
				t.Errorf("delay %v", e.RetryAfter)
			}
		}
		servertest.WantEqual(t, "another run", outcome(send(n, signal("s-2", "PAUSE", inRun("other")))), "ACCEPTED")
		servertest.WantEqual(t, "events", len(n.List("run")), 61)
		wantSeries(n,
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
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Append("other", servertest.NewEvent("RunStarted"))
		const count, callers = 10_000, 200
		var flood sync.WaitGroup
		var next, decided, limited atomic.Int64
		for range callers {
			flood.Go(func() {
				for i := next.Add(1); i <= count; i = next.Add(1) {
					switch _, err := signals(n).SendSignal(n.Context(), signal(fmt.Sprint("s-", i), "WAVE")); {
					case err == nil:
						decided.Add(1)
					case servertest.ReasonIn(status.Convert(err)) == contract.ReasonSignalRateLimited:
						limited.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		for i := range 10 {
			n.Append("other", servertest.NewEvent("StepStarted", servertest.Step(fmt.Sprint(i))))
		}
		servertest.WantEqual(t, "a signal to another run", outcome(send(n, signal("s", "PAUSE", inRun("other")))), "ACCEPTED")
		flood.Wait()
		if decided.Load() != 60 || limited.Load() != count-60 {
			t.Errorf("%d decided, %d over the limit", decided.Load(), limited.Load())
		}
		servertest.WantEqual(t, "events", len(n.List("run")), 61)
		wantSeries(n, `runlog_signals_total{decision="rejected",type="other"} 60`)
	})
}

// TestSignalOptions: options that make no sense stop the start.
func TestSignalOptions(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for name, o := range map[string]server.SignalOptions{
			"Roles":     {Roles: map[string]auth.Roles{"PAUSE": auth.AllRoles}},
			"PolicyURL": {PolicyURL: "policy"},
		} {
			opts := servertest.Options(t)
			opts.Signals = o
			if err := errors.Join(opts.Validate()); err == nil || !strings.Contains(err.Error(), "Options.Signals."+name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
