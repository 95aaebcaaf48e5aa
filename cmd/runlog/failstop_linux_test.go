package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestWriteErrorStopsTheProcessD10: when the file system refuses a write, the process answers no
// append any more and ends by itself, saying why, with an exit code that is no success; started
// again, it has everything that was acknowledged, and what had no answer can be sent again (APP-2,
// APP-10).
func TestWriteErrorStopsTheProcessD10(t *testing.T) {
	for _, c := range []struct {
		name string
		env  bool
		size uint64 // no file may grow beyond it
	}{
		{"a small node whose flushes fail too", true, 4 << 10},
		{"a node whose log cannot be written", false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var env []string
			if c.env {
				env = append(env, smallNode+"="+dir)
			}
			n := spawnNode(t, dir, env...)
			conn := dialNode(t, n.ready(t).GRPC)
			ledgers := make([]*ledger, 4)
			for i := range ledgers {
				ledgers[i] = newLedger(fmt.Sprintf("writer-%d", i))
			}
			acked := load(t, conn, ledgers, 0, func() {
				awaitAppends(t, conn)
				time.Sleep(200 * time.Millisecond)
				limit := unix.Rlimit{Cur: c.size, Max: c.size}
				if err := unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
					t.Error(err)
					n.kill()
				}
			})
			select {
			case <-n.exited:
			case <-time.After(60 * time.Second):
				t.Fatalf("the node goes on:\n%s", n.stderr)
			}
			if code := n.cmd.ProcessState.ExitCode(); code <= 0 {
				t.Errorf("exit code %d", code)
			}
			if said := n.stderr.String(); !strings.Contains(said, unix.EFBIG.Error()) || strings.Contains(said, "goroutine ") {
				t.Errorf("it said:\n%s", said)
			}
			if acked == 0 {
				t.Fatal("no event was acknowledged: the test proved nothing")
			}
			n = spawnNode(t, dir)
			conn = dialNode(t, n.ready(t).GRPC)
			verifyRuns(t, conn, ledgers, func(string) bool { return true })
			if again := load(t, conn, ledgers, 1, func() {
				awaitAppends(t, conn)
				time.Sleep(100 * time.Millisecond)
				n.kill()
			}); again == 0 {
				t.Error("nothing was acknowledged after the restart")
			}
		})
	}
}

// awaitAppends returns when the node has answered appends that were made behind those of the load:
// on a machine that does much else that takes its time.
func awaitAppends(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	events := runlogv1.NewEventServiceClient(conn)
	for attempt := range uint32(3) {
		if _, err := events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "awaited", Events: []*runlogv1.EventWrite{{
			EventType: "Noted", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
			LogicalAttemptId: 1 + attempt, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		}}}); err != nil {
			t.Error(err)
		}
	}
}
