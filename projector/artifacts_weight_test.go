package projector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
)

// TestWeightCoversWhatARunGathers: a run that completes gathers the artifacts of its steps, and is
// counted with them.
func TestWeightCoversWhatARunGathers(t *testing.T) {
	s := run.Empty(&storage.Run{RunID: "run"})
	r := round{p: &Projector{metrics: newMetrics(prometheus.NewRegistry(), &Projector{})}, changed: map[string]*folded{}}
	f := newFolded(&storage.Run{RunID: "run"}, s, s, 0)
	r.changed["run"] = f
	add := func(kind, step, payload string) {
		c := &storage.Commit{Position: 1, Run: f.Run, Records: []storage.Record{{Recorded: contract.Recorded{RunSeq: f.Now.LastEventSeq + 1, Event: contract.Event{
			RunID: "run", Type: kind, StepID: step, LogicalAttemptID: 1, Payload: []byte(payload)}}}}}
		if err := r.foldSnapshot(c); err != nil {
			t.Fatal(err)
		}
	}
	add(contract.RunStarted, "", `{}`)
	for step := range 100 {
		add(contract.StepCompleted, fmt.Sprint("step-", step), `{"artifacts":[{"uri":"s3://`+strings.Repeat("x", 2000)+fmt.Sprint(step)+`","kind":"table"}]}`)
	}
	add(contract.RunCompleted, "", `{}`)
	if length := len(f.Now.CanonicalJSON()); length > baseWeight+f.weight {
		t.Errorf("%d bytes, counted as %d", length, baseWeight+f.weight)
	}
}
