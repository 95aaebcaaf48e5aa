package engine_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/executor"
	"runlog/engine/mock"
	"runlog/engine/plan"
	"runlog/engine/runner"
)

var update = flag.Bool("update", false, "rewrite the published capabilities")

// TestAdapterCapabilitiesENG1: the adapterCapabilities.json of each adapter is what its code says,
// with the executors of this module.
func TestAdapterCapabilitiesENG1(t *testing.T) {
	t.Parallel()
	all := map[string]executor.Executor{}
	for _, name := range []string{"noop", "command", "http", "llm"} {
		all[name] = executor.Noop{}
	}
	registry, err := executor.NewRegistry(executor.Options{}, all)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plans, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs})
	if err != nil {
		t.Fatal(err)
	}
	log, err := client.Dial("127.0.0.1:1", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	calls, err := api.New(api.Options{URL: "http://127.0.0.1:1/api"})
	if err != nil {
		t.Fatal(err)
	}
	made := func(a interface{ Capabilities() engine.Capabilities }, err error) engine.Capabilities {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a.Capabilities()
	}
	r, err := runner.New(runner.Options{Client: log, Worker: "w", Tenant: "t", Project: "p", Environment: "e", Blobs: blobs, Base: "file:///x", Executors: registry})
	ofRunner := made(r, err)
	c, err := conductor.New(conductor.Options{API: calls, Log: log, Plans: plans, Registry: registry, Worker: "w", OwnerEmail: "a@example.com"})
	ofConductor := made(c, err)
	m, err := mock.New().Open(mock.Options{Log: log, Plans: plans, Executors: registry, Worker: "w"})
	ofMock := made(m, err)
	for folder, is := range map[string]engine.Capabilities{"runner": ofRunner, "conductor": ofConductor, "mock": ofMock} {
		text, err := json.MarshalIndent(is, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "adapterCapabilities.json")
		if *update {
			if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if has, err := os.ReadFile(path); err != nil || string(has) != string(text)+"\n" {
			t.Errorf("%s differs (go test -update rewrites it): %v\n%s\nwant\n%s", path, err, has, text)
		}
	}
}
