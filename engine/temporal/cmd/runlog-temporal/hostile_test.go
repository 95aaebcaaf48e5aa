package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"runlog/engine/program/programtest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// TestHostileTenantENG7: a worker of two tenants refuses what a plan of one tenant must not do,
// each with a code: foreign queues, secrets and programs, private addresses, and plans from
// elsewhere. Nothing of the other tenant leaves.
func TestHostileTenantENG7(t *testing.T) {
	h := programtest.NewHostile(t)
	b := newBed(t)
	plans, elsewhere := filepath.Join(b.dir, "plans"), filepath.Join(b.dir, "rival")
	for _, dir := range []string{plans, elsewhere} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := run(ctx, &said, &said, b.args("worker", append(programtest.HostileFlags, "--allow", "file://"+plans)...)); err != nil {
			t.Error(err)
		}
	})
	ended := func() { stop(); working.Wait() }
	t.Cleanup(ended)
	for _, p := range h.Plans(plans, elsewhere, "PLAN_UNSUPPORTED") {
		path := filepath.Join(plans, p.Name+".json")
		programtest.Write(t, path, p.Body)
		// The worker makes the search attributes known.
		await.Poll(t, "the start of the run "+p.Name, func() bool {
			_, err := b.command("start", "--run", p.Name, "--uri", p.URI, path)
			return err == nil
		})
		if status := b.ends(p.Name); status != runlogv1.RunStatus_FAILED {
			t.Errorf("%s: the run is %v", p.Name, status)
		}
		var events strings.Builder
		for r, err := range b.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: p.Name}) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&events, r.GetEventType(), string(r.GetPayloadJson()))
		}
		h.WantRefused(p, events.String())
	}
	ended()
	h.WantKept(said.String())
}
