package main

import (
	"strings"
	"testing"

	"runlog/engine/program/programtest"
)

// TestHostileTenantENG7: a worker of two tenants refuses what a plan of one tenant must not do,
// each with a code: foreign queues, secrets and programs, private addresses, and plans from
// elsewhere. Nothing of the other tenant leaves.
func TestHostileTenantENG7(t *testing.T) {
	h := programtest.NewHostile(t)
	b := newBed(t)
	stop := b.work(programtest.HostileFlags...)
	for _, p := range h.Plans(b.dir, t.TempDir(), "PLAN_INVALID") {
		b.requestPlan(p.Name, p.Name, p.Body, p.URI)
		h.WantRefused(p, strings.Join(b.until(p.Name, "RunFailed"), "\n"))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
