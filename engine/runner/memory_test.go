package runner_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestKeptStatesATT5: what a runner keeps of a run that it has executed, and with what it goes on,
// is what a replay of the log gives.
func TestKeptStatesATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKeptStatesATT5)
}

func testKeptStatesATT5(t *testing.T) {
	b := newBed(t)
	b.fail["A"] = 1
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	compare := func() {
		t.Helper()
		kept, err := p.r.Keeps(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		read := replay.New()
		for e, err := range p.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: id, PayloadForm: runlogv1.PayloadForm_JSON}) {
			if err != nil {
				t.Fatal(err)
			}
			read.Apply(e)
		}
		// The log may write a payload in another form.
		for _, s := range []*replay.State{kept, read} {
			for _, step := range s.Steps {
				for _, text := range []*json.RawMessage{&step.Output, &step.Started, &step.Waiting, &step.Attested, &step.Ended} {
					if len(*text) > 0 {
						var form bytes.Buffer
						if err := json.Compact(&form, *text); err != nil {
							t.Fatal(err)
						}
						*text = form.Bytes()
					}
				}
			}
		}
		if !reflect.DeepEqual(kept.Steps, read.Steps) || kept.LastSeq != read.LastSeq || kept.Status != read.Status || kept.StepsSeq != read.StepsSeq ||
			!reflect.DeepEqual(kept.Signals, read.Signals) || !kept.StartedAt.Equal(read.StartedAt) || !kept.EndedAt.Equal(read.EndedAt) {
			t.Errorf("kept %+v\nread %+v", kept, read)
			for i := range kept.Steps {
				t.Errorf("step %+v\nread %+v", kept.Steps[i], read.Steps[i])
			}
		}
	}
	compare()
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	compare()
	p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
	compare()
}
