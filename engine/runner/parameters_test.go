package runner_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestParametersENG1: a step gets the parameters of the request of its run.
func TestParametersENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testParametersENG1)
}

func testParametersENG1(t *testing.T) {
	b, got := newBed(t), make(chan string, 2)
	p := b.play(t, func(_ context.Context, task executor.Task) error {
		got <- string(task.Parameters)
		return nil
	})
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"script"}]}`))
	parameters, err := structpb.NewStruct(map[string]any{"day": "2026-02-11"})
	if err != nil {
		t.Fatal(err)
	}
	engineType := runner.EngineType
	for id, context := range map[string]*structpb.Struct{"with": parameters, "without": nil} {
		if _, err := b.srv.Client(client.Options{}).RequestRun(t.Context(), &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue,
			EngineType: &engineType, PlanRef: ref, Context: context,
		}); err != nil {
			t.Fatal(err)
		}
		p.until(id, "success")
		want := map[string]string{"with": `{"day":"2026-02-11"}`}[id]
		if is := strings.ReplaceAll(<-got, " ", ""); is != want {
			t.Errorf("run %s: the parameters are %s, want %s", id, is, want)
		}
	}
}
