package server

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/testbed/bubble"
)

// TestUnknownTypesENV6: an operator may refuse unknown event types. Known types are still accepted,
// and stored events stay readable.
func TestUnknownTypesENV6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("Noted", payload(`{"any":"thing"}`)))

		n.opts.RefuseUnknownTypes = true
		n.restart()
		_, err := n.tryAppend("run", newEvent("StepStarted", step("a")), newEvent("Noted", step("b")))
		e := refused(t, err, contract.ReasonInvalidArgumentField)
		if len(e.fields) != 1 || !strings.Contains(e.fields["events[1].eventType"], "Noted") {
			t.Errorf("violations %v", e.fields)
		}
		n.append("run", newEvent("StepStarted", step("a")))
		if got := n.list("run"); len(got) != 2 || got[0].EventType != "Noted" {
			t.Errorf("the run has %v", got)
		}
	})
}

// TestOpaqueKeysIDM5: under the policy opaque a 2.x event keeps whatever printable key it names,
// and one without a key still gets the derived one.
func TestOpaqueKeysIDM5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		named := newEvent("StepStarted", step("a"), key("pause-1"))
		_, err := n.tryAppend("run", named)
		refused(t, err, contract.ReasonKeyMismatch)

		n.opts.OpaqueKeys = true
		n.restart()
		wantResults(t, "opaque", n.append("run", named, newEvent("StepStarted", step("a"))).Results, "nn")
		wantResults(t, "again", n.append("run", named, newEvent("StepStarted", step("a"))).Results, "dd")
		if got := n.list("run")[0].IdempotencyKey; got != "pause-1" {
			t.Errorf("key %q", got)
		}
		_, err = n.tryAppend("run", newEvent("StepStarted", step("b"), key("tab\there")))
		refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

// TestClockSkewAPP5: a leader whose clock is behind the last stamp still makes rising stamps, and
// raises the alert until its clock has caught up.
func TestClockSkewAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		n := startNode(t, func(o *Options) {
			o.Clock = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		})
		before := n.append("run", newEvent("Noted", step("a"))).Results[0].PersistedAt.AsTime()
		wantEqual(t, "alerts", n.metric("runlog_clock_skew_alerts_total"), 0)

		offset.Store(int64(-time.Hour))
		n.restart()
		bubble.Until(t, "CLOCK_SKEW_HIGH is raised", func() bool { return n.metric("runlog_clock_skew_alerts_total") == 1 })
		if skew := n.metric("runlog_clock_skew_seconds"); skew < 3500 || skew > 3600 {
			t.Errorf("skew of %v s, want about an hour", skew)
		}
		after := n.append("run", newEvent("Noted", step("b"))).Results[0].PersistedAt.AsTime()
		if gap := after.Sub(before); gap <= 0 || gap > time.Microsecond {
			t.Errorf("stamped %v after the last, want the next nanoseconds", gap)
		}

		offset.Store(int64(time.Hour))
		bubble.Until(t, "the alert ends", func() bool { return n.metric("runlog_clock_skew_seconds") == 0 })
		wantEqual(t, "alerts", n.metric("runlog_clock_skew_alerts_total"), 1)
	})
}
