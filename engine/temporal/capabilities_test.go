package temporal_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"runlog/engine/executor"
	"runlog/engine/temporal"
)

// TestCapabilitiesENG1: adapterCapabilities.json is what the code says, with the executors of the
// main module.
func TestCapabilitiesENG1(t *testing.T) {
	t.Parallel()
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{
		"noop": executor.Noop{}, "command": executor.Noop{}, "http": executor.Noop{}, "llm": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, diamond)
	o := w.options(w.log)
	o.Registry = registry
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.MarshalIndent(e.Capabilities(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("adapterCapabilities.json"); err != nil || string(got) != string(want)+"\n" {
		t.Errorf("adapterCapabilities.json differs: %v\n%s\nwant\n%s", err, got, want)
	}
}

// TestPingENG1: an engine asks for its own namespace, also if another engine of the process has
// asked for another one before.
func TestPingENG1(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	o := w.options(w.log)
	o.Namespace = "missing"
	o.Temporal = w.temporal.Client(t, o.Namespace)
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), `namespace "missing"`) {
		t.Errorf("the ping of a namespace that is not there: %v", err)
	}
	if err := w.engine(w.log).Ping(t.Context()); err != nil {
		t.Errorf("the ping of a namespace that is there: %v", err)
	}
}
