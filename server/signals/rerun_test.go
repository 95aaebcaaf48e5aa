package signals_test

import (
	"strings"
	"testing"

	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRetryAfterEndSaysRerunSIG3: a RETRY_STEP of a run that has ended is rejected, and its reason
// names the rerun.
func TestRetryAfterEndSaysRerunSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepFailed", servertest.Step("build")), servertest.NewEvent("RunFailed"))
		servertest.WantEqual(t, "decision", outcome(send(n, signal("s", "RETRY_STEP", toStep("build")))), "RUN_ENDED")
		if why := n.Snapshot("run").Signals[0].GetReason(); !strings.Contains(why, "rerunOf") {
			t.Errorf("the reason is %q", why)
		}
	})
}
