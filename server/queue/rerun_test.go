package queue_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRerunQUE1: a request may rerun a run of its scope that has failed, with the same plan. Its
// RunQueued says which. A run of another tenant is as one that does not exist.
func TestRerunQUE1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		digest := strings.Repeat("ab", 32)
		planned := func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = digest }
		for _, run := range []string{"failed", "going", "foreign", "completed"} {
			n.Request("of-"+run, servertest.Named(run), planned, func(r *runlogv1.RequestRunRequest) {
				if run == "foreign" {
					r.TenantId = "rival"
				}
			})
			ends := map[string]string{"failed": contract.RunFailed, "foreign": contract.RunFailed, "completed": contract.RunCompleted}
			for _, eventType := range []string{contract.RunStarted, ends[run]} {
				e := servertest.RunEnd(eventType)
				if run == "foreign" {
					e.TenantId = "rival"
				}
				if eventType != "" {
					n.Append(run, e)
				}
			}
		}
		rerun := func(id, of string, change ...func(*runlogv1.RequestRunRequest)) (*runlogv1.RequestRunResponse, error) {
			req := servertest.RunRequest(id, planned, func(r *runlogv1.RequestRunRequest) { r.RerunOf = &of })
			for _, c := range change {
				c(req)
			}
			return n.Queues().RequestRun(n.Context(), req)
		}
		res, err := rerun("again", "failed")
		if err != nil {
			t.Fatal(err)
		}
		if same, err := rerun("again", "failed"); err != nil || !same.Idempotent || same.Run.RunId != res.Run.RunId {
			t.Errorf("the same request again: %v %v", same, err)
		}
		for _, engineType := range []string{"runlog", "conductor", "mock", "temporal", "another"} {
			if _, err := rerun("at-"+engineType, "failed", func(r *runlogv1.RequestRunRequest) { r.EngineType = proto.String(engineType) }); err != nil {
				t.Errorf("a rerun in the engine %s: %v", engineType, err)
			}
		}
		first := n.List(res.Run.RunId)[0]
		if of := servertest.ParseObject(t, first.GetPayloadJson())["rerunOf"]; first.EventType != contract.RunQueued || of != "failed" {
			t.Errorf("the first event %v", first)
		}
		for name, tt := range map[string]struct {
			of     string
			reason contract.Reason
			change func(*runlogv1.RequestRunRequest)
		}{
			"a run that goes on": {"going", contract.ReasonInvalidArgumentField, func(*runlogv1.RequestRunRequest) {}},
			"a run with success": {"completed", contract.ReasonInvalidArgumentField, func(*runlogv1.RequestRunRequest) {}},
			"no name":            {"", contract.ReasonInvalidArgumentField, func(*runlogv1.RequestRunRequest) {}},
			"a foreign run":      {"foreign", contract.ReasonRunNotFound, func(*runlogv1.RequestRunRequest) {}},
			"no run":             {"nowhere", contract.ReasonRunNotFound, func(*runlogv1.RequestRunRequest) {}},
			"another project":    {"failed", contract.ReasonRunNotFound, func(r *runlogv1.RequestRunRequest) { r.ProjectId = "other" }},
			"another digest":     {"failed", contract.ReasonInvalidArgumentField, func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = strings.Repeat("cd", 32) }},
			"no digest":          {"failed", contract.ReasonInvalidArgumentField, func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = "" }},
			"another version":    {"failed", contract.ReasonInvalidArgumentField, func(r *runlogv1.RequestRunRequest) { r.PlanRef.PlanVersion = "8" }},
		} {
			t.Log(name)
			_, err := rerun("refused", tt.of, tt.change)
			servertest.Refused(t, err, tt.reason)
		}
	})
}
