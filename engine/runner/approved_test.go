package runner_test

import (
	"bytes"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/client"
	"runlog/engine/blob"
	"runlog/testbed/bubble"
)

// TestApprovedPlansPLAN1: a runner of approved plans executes no plan that a caller has stored or
// named elsewhere.
func TestApprovedPlansPLAN1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testApprovedPlansPLAN1)
}

func testApprovedPlansPLAN1(t *testing.T) {
	b := newBed(t)
	before := b.start(t)
	m := before.manifest(`{"step_key":"A"}`)
	before.kill()
	o := b.options(t, b.srv.Client(client.Options{}))
	var err error
	if o.Approved, err = blob.New(blob.Options{Allow: []string{b.base + "/approved"}}); err != nil {
		t.Fatal(err)
	}
	p := b.run(t, o)
	for path, body := range map[string]string{
		"/api/manifests": `{"name":"m","steps":[{"step_key":"A"}]}`, "/api/runs": `{"manifest_id":"` + m + `","initiated_by":"jed"}`,
	} {
		if status, answer := p.call("POST", path, body); status != http.StatusForbidden {
			t.Errorf("%s: %d %v", path, status, answer)
		}
	}
	body := []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"}]}`)
	own := b.plan(t, body)
	b.request(t, "own", own)
	approved := proto.CloneOf(own)
	approved.Uri = b.base + "/approved/p.json"
	if err := b.blobs.Put(t.Context(), approved.Uri, bytes.NewReader(body), int64(len(body))); err != nil {
		t.Fatal(err)
	}
	b.request(t, "approved", approved)
	p.until("approved", "success")
	p.until("own", "error")
	if code, _ := b.failure(t, "own"); code != "PLAN_FETCH_FAILED" || b.count("own", "A") != 0 {
		t.Errorf("it fails with %s, and A was executed %d times", code, b.count("own", "A"))
	}
}
