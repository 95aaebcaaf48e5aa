package signals_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSecretsStayFromPolicySIG3: a signal with a secret is refused before the policy hears of it.
func TestSecretsStayFromPolicySIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		hook := servertest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			_, _ = io.WriteString(w, `{"allow": true}`)
		}))
		n := servertest.Start(t, func(o *server.Options) { o.Signals.PolicyURL, o.Signals.PolicyTimeout = hook, servertest.Patience })
		n.Append("run", servertest.NewEvent("RunStarted"))
		_, err := signals(n).SendSignal(n.Context(), signal("s-1", "PAUSE", func(r *runlogv1.SendSignalRequest) { r.Reason = "use " + servertest.FakeToken }))
		servertest.Refused(t, err, contract.ReasonPayloadHasSecret)
		servertest.WantEqual(t, "calls of the policy", asked.Load(), 0)
		servertest.WantEqual(t, "without one", outcome(send(n, signal("s-1", "PAUSE"))), "ACCEPTED")
		servertest.WantEqual(t, "calls of the policy", asked.Load(), 1)
	})
}
