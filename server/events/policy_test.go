package events_test

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestUnknownTypesENV6: an operator may refuse unknown event types. Known types are still accepted,
// and stored events stay readable.
func TestUnknownTypesENV6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("Noted", servertest.Payload(`{"any":"thing"}`)))

		n.Opts.RefuseUnknownTypes = true
		n.Restart()
		_, err := n.TryAppend("run", servertest.NewEvent("StepStarted", servertest.Step("a")), servertest.NewEvent("Noted", servertest.Step("b")))
		e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		if len(e.Fields) != 1 || !strings.Contains(e.Fields["events[1].eventType"], "Noted") {
			t.Errorf("violations %v", e.Fields)
		}
		n.Append("run", servertest.NewEvent("StepStarted", servertest.Step("a")))
		if got := n.List("run"); len(got) != 2 || got[0].EventType != "Noted" {
			t.Errorf("the run has %v", got)
		}
	})
}

// TestOpaqueKeysIDM5: under the policy opaque a 2.x event keeps whatever printable key it names,
// and one without a key still gets the derived one.
func TestOpaqueKeysIDM5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		named := servertest.NewEvent("StepStarted", servertest.Step("a"), servertest.Key("pause-1"))
		_, err := n.TryAppend("run", named)
		servertest.Refused(t, err, contract.ReasonKeyMismatch)

		n.Opts.OpaqueKeys = true
		n.Restart()
		servertest.WantResults(t, "opaque", n.Append("run", named, servertest.NewEvent("StepStarted", servertest.Step("a"))).Results, "nn")
		servertest.WantResults(t, "again", n.Append("run", named, servertest.NewEvent("StepStarted", servertest.Step("a"))).Results, "dd")
		if got := n.List("run")[0].IdempotencyKey; got != "pause-1" {
			t.Errorf("key %q", got)
		}
		_, err = n.TryAppend("run", servertest.NewEvent("StepStarted", servertest.Step("b"), servertest.Key("tab\there")))
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

// TestClockSkewAPP5: a leader whose clock is behind the last stamp still makes rising stamps, and
// raises the alert until clock and stamps agree. So does one whose clock jumps ahead: its stamps
// catch up, in ten times the jump.
func TestClockSkewAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		n := servertest.Start(t, func(o *server.Options) {
			o.Clock, o.Monotonic = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }, time.Now
		})
		before := n.Append("run", servertest.NewEvent("Noted", servertest.Step("a"))).Results[0].PersistedAt.AsTime()
		servertest.WantEqual(t, "alerts", n.Metric("runlog_clock_skew_alerts_total"), 0)

		offset.Store(int64(-time.Hour))
		n.Restart()
		bubble.Until(t, "CLOCK_SKEW_HIGH is raised", func() bool { return n.Metric("runlog_clock_skew_alerts_total") == 1 })
		if skew := n.Metric("runlog_clock_skew_seconds"); skew < 3500 || skew > 3600 {
			t.Errorf("skew of %v s, want about an hour", skew)
		}
		began := time.Now()
		time.Sleep(10 * time.Second)
		after := n.Append("run", servertest.NewEvent("Noted", servertest.Step("b"))).Results[0].PersistedAt.AsTime()
		if gap, elapsed := after.Sub(before), time.Since(began); gap < elapsed*9/10 || gap > 2*elapsed {
			t.Errorf("stamped %v after the last, %v after the restart, want nine tenths", gap, elapsed)
		}

		offset.Store(0)
		bubble.Until(t, "the alert ends", func() bool { return math.Abs(n.Metric("runlog_clock_skew_seconds")) < 1 })
		offset.Store(int64(30 * time.Second))
		bubble.Until(t, "CLOCK_SKEW_HIGH is raised again", func() bool { return n.Metric("runlog_clock_skew_alerts_total") == 2 })
		if skew := n.Metric("runlog_clock_skew_seconds"); skew > -20 {
			t.Errorf("skew of %v s, want -30 s at first", skew)
		}
		time.Sleep(5 * time.Minute)
		if skew := n.Metric("runlog_clock_skew_seconds"); skew < -1 || skew > 0 {
			t.Errorf("skew of %v s after ten times the jump", skew)
		}
	})
}
