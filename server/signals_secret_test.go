package server

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestSecretsStayFromPolicySIG3: a signal with a secret is refused before the policy hears of it.
func TestSecretsStayFromPolicySIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		hook := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n := startNode(t, func(o *Options) { o.Signals.PolicyURL, o.Signals.PolicyTimeout = hook, patience })
		n.append("run", newEvent("RunStarted"))
		_, err := n.signals().SendSignal(n.context(), signal("s-1", "PAUSE", func(r *runlogv1.SendSignalRequest) { r.Reason = "use " + fakeToken }))
		refused(t, err, contract.ReasonPayloadHasSecret)
		wantEqual(t, "calls of the policy", asked.Load(), 0)
		wantEqual(t, "without one", outcome(n.send(signal("s-1", "PAUSE"))), "ACCEPTED")
		wantEqual(t, "calls of the policy", asked.Load(), 1)
	})
}
