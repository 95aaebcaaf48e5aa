package server

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestDiskLowAPP9: while the disk is nearly full, every kind of append is refused early, nothing is
// stored, and reads continue. With free space the node resumes by itself.
func TestDiskLowAPP9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(1 << 40)
		n := startNode(t, func(o *Options) {
			o.MinFreeBytes = 1 << 20
			o.DiskFree = func(string) (uint64, error) {
				if free.Load() == 0 {
					return 0, errors.New("no answer")
				}
				return free.Load(), nil
			}
		})
		n.append("run", newEvent("Noted", step("a")))

		free.Store(1<<20 - 1)
		bubble.Until(t, "DISK_LOW is raised", func() bool { return n.metric("runlog_disk_low_alerts_total") == 1 })
		for what, call := range map[string]func() error{
			"append": func() error {
				_, err := n.tryAppend("run", newEvent("Noted", step("b")))
				return err
			},
			"create": func() error {
				_, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: newRun("new")})
				return err
			},
			"reference": func() error {
				_, err := n.runs.SetEngineRunRef(n.context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "x"})
				return err
			},
		} {
			if e := refused(t, call(), contract.ReasonDiskLow); e.retryAfter != 10*time.Second || e.metadata["alert"] != "DISK_LOW" {
				t.Errorf("%s: retry after %v, metadata %v", what, e.retryAfter, e.metadata)
			}
		}
		answer := n.http(http.MethodPost, appendRoute, `{"events":[`+httpEvent("c")+`]}`)
		answer.refused(t, contract.ReasonDiskLow)
		wantEqual(t, "HTTP status", answer.code, http.StatusInsufficientStorage)
		if got := n.http(http.MethodGet, "/readyz", "").code; got != http.StatusServiceUnavailable {
			t.Errorf("/readyz is %d", got)
		}
		if got := n.list("run"); len(got) != 1 {
			t.Errorf("the run has %d events", len(got))
		}

		free.Store(0) // a file system that gives no answer changes nothing
		n.server.disk.Check()
		if n.server.Ready() {
			t.Error("ready without knowing about room")
		}
		free.Store(1 << 20)
		bubble.Until(t, "appends are taken", n.server.Ready)
		n.append("run", newEvent("Noted", step("b")))
		wantEqual(t, "alerts", n.metric("runlog_disk_low_alerts_total"), 1)
	})
}
