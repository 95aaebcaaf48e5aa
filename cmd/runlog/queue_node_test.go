package main

import (
	"strings"
	"testing"

	"runlog/client/command/output"
)

// TestQueueCommandsQUE10 takes runs through a queue of a real node, with the commands alone.
func TestQueueCommandsQUE10(t *testing.T) {
	t.Parallel()
	c := commandLine{t, map[string]string{"RUNLOG_SERVER": spawnNode(t, t.TempDir()).ready(t).GRPC}}
	do := func(want output.ExitCode, says, line string) string {
		t.Helper()
		return c.do(want, says, strings.Fields(strings.ReplaceAll(line, "WHERE", "--tenant acme --project web --environment prod"))...)
	}
	do(output.ExitNotFound, "QUEUE_NOT_FOUND", "queue show WHERE")
	do(output.ExitOK, "On full         queue", "queue put WHERE --max-running 1 --on-full queue --max-queued 2")
	do(output.ExitRefused, "priority", "run request WHERE --plan build@3 --priority 10")
	do(output.ExitOK, "READY", "run request WHERE --plan build@3 --id one --run run-1")
	do(output.ExitOK, "nothing was stored", "run request WHERE --plan build@3 --id one --run run-1")
	do(output.ExitOK, "", "run request WHERE --plan build@3 --id two --run run-2")
	do(output.ExitOK, "DELAYED", "run request WHERE --plan build@3 --id three --run run-3 --not-before +1h")
	do(output.ExitUnavailable, "RUN_QUEUE_FULL", "run request WHERE --plan build@3 --id four --timeout 2s")
	do(output.ExitOK, "priority 9", "queue prioritize run-2 9")

	if leased := do(output.ExitOK, "", "queue lease --tenant acme --worker host-1 --max 5 --wait 5s -o json"); strings.Count(leased, `"runId":"run-2","fence":"2"`) != 1 || strings.Count(leased, "\n") != 1 {
		t.Fatalf("leased %s; want run-2 alone: it has the highest priority, and there is one slot", leased)
	}
	do(output.ExitRefused, "LEASE_LOST", "queue release run-2 --fence 1 --outcome started")
	do(output.ExitOK, "run-2 is DELAYED until", "queue release run-2 --fence 2 --outcome failed --error busy --retry-after 1h")
	do(output.ExitOK, "run-1", "queue lease default WHERE --worker host-1")
	do(output.ExitOK, "run-1 is RUNNING", "queue release run-1 --fence 2 --outcome started")
	do(output.ExitOK, "was released before", "queue release run-1 --fence 2 --outcome started")
	do(output.ExitRefused, "RUN_NOT_QUEUED", "queue cancel run-1")
	do(output.ExitOK, "run-3 is cancelled", "queue cancel run-3 --reason late")
	do(output.ExitOK, "RunCancelled", "events run-3")

	do(output.ExitOK, "paused", "queue pause WHERE")
	do(output.ExitOK, "paused", "queue ls --tenant acme")
	do(output.ExitOK, "1 (0 ready, 1 delayed)", "queue show WHERE")
	do(output.ExitOK, "open", "queue resume WHERE")
	if runs := do(output.ExitOK, "", "queue show WHERE --runs"); !strings.Contains(runs, "run-1  RUNNING") || !strings.Contains(runs, "run-2  DELAYED") || strings.Contains(runs, "run-3") {
		t.Errorf("the runs of the queue are\n%s", runs)
	}
	if runs := do(output.ExitOK, "run-2", "queue show WHERE --state delayed -o json"); strings.Contains(runs, "run-1") {
		t.Errorf("the delayed runs are\n%s", runs)
	}

	do(output.ExitOK, "READY", `run request WHERE --plan build@3 --plan-sha256 `+strings.Repeat("ab", 32)+` --id five --run run-5 --queue other --engine mine --run-context {"day":1}`)
	do(output.ExitRefused, "is PENDING: name a run that is FAILED or CANCELLED", "run request --rerun run-5 --id six")
	do(output.ExitOK, "run-5 is cancelled", "queue cancel run-5")
	do(output.ExitUsage, "--plan is given by the run of --rerun", "run request --rerun run-5 --plan build@3")
	do(output.ExitOK, "READY", "run request --rerun run-5 --id six --run run-6")
	if queued := do(output.ExitOK, "", "events run-6 -o json"); !strings.Contains(queued, `"rerunOf":"run-5"`) || !strings.Contains(queued, `"day":1`) || !strings.Contains(queued, `"queue":"other"`) {
		t.Errorf("the rerun has the events\n%s", queued)
	}
}
