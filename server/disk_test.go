package server_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestDiskLowAPP9: while the disk is nearly full, every kind of append is refused early, nothing is
// stored, and reads continue. With free space the node resumes by itself.
func TestDiskLowAPP9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(1 << 40)
		n := servertest.Start(t, func(o *server.Options) {
			o.MinFreeBytes = 1 << 20
			o.DiskFree = func(string) (uint64, error) {
				if free.Load() == 0 {
					return 0, errors.New("no answer")
				}
				return free.Load(), nil
			}
		})
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("a")))

		free.Store(1<<20 - 1)
		bubble.Until(t, "DISK_LOW is raised", func() bool { return n.Metric("runlog_disk_low_alerts_total") == 1 })
		for what, call := range map[string]func() error{
			"append": func() error {
				_, err := n.TryAppend("run", servertest.NewEvent("Noted", servertest.Step("b")))
				return err
			},
			"create": func() error {
				_, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("new")})
				return err
			},
			"reference": func() error {
				_, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "x"})
				return err
			},
		} {
			if e := servertest.Refused(t, call(), contract.ReasonDiskLow); e.RetryAfter != 10*time.Second || e.Metadata["alert"] != "DISK_LOW" {
				t.Errorf("%s: retry after %v, metadata %v", what, e.RetryAfter, e.Metadata)
			}
		}
		answer := n.HTTP(http.MethodPost, servertest.AppendRoute, `{"events":[`+servertest.HTTPEvent("c")+`]}`)
		answer.Refused(t, contract.ReasonDiskLow)
		servertest.WantEqual(t, "HTTP status", answer.Code, http.StatusInsufficientStorage)
		if got := n.HTTP(http.MethodGet, "/readyz", "").Code; got != http.StatusServiceUnavailable {
			t.Errorf("/readyz is %d", got)
		}
		if got := n.List("run"); len(got) != 1 {
			t.Errorf("the run has %d events", len(got))
		}

		free.Store(0) // a file system that gives no answer changes nothing
		n.Server.Disk().Check()
		if n.Server.Ready() {
			t.Error("ready without knowing about room")
		}
		free.Store(1 << 20)
		bubble.Until(t, "appends are taken", n.Server.Ready)
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("b")))
		servertest.WantEqual(t, "alerts", n.Metric("runlog_disk_low_alerts_total"), 1)
	})
}
