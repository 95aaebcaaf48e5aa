package storage_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldenRequests are two proposals that show every form of every format: a creation, an unknown
// type, an opaque key, another plan, a sparse event, an identity, a fence, an end, and a duplicate
// between new events.
func goldenRequests() [][]storagetest.Request {
	size, compression := int64(12), "gzip"
	create := &storage.Creation{
		Scope: storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"},
		Metadata: storage.Metadata{
			PlanRef: &storage.PlanRef{
				URI: "plan:p", SHA256: "aa", SchemaVersion: "1", PlanID: "plan", PlanVersion: "v1",
				SizeBytes: &size, Compression: &compression,
			},
			EngineType: "engine", TriggeredBy: "someone", TriggerSource: "manual",
			Labels: map[string]string{"label": "value"}, CreatedBy: "token:creator",
		},
	}
	events := storagetest.Events("run", 0, 4)
	events[1].Type, events[1].EmittedBy, events[1].ParentEventID = "Custom", "producer", "parent"
	events[1].IdempotencyKey = contract.DeriveKey(contract.Line2, "run", "step-1", 1, 1, "Custom", "plan", "v1")
	events[2].PlanVersion, events[2].KeyDerived, events[2].IdempotencyKey = "v2", false, "opaque"
	sparse := &events[3]
	sparse.Contract, sparse.KeyDerived, sparse.IdempotencyKey = contract.Line11, false, "sparse"
	sparse.Absent, sparse.CausedBySignalID = 31, "signal"
	sparse.TenantID, sparse.ProjectID, sparse.EnvironmentID, sparse.PlanID, sparse.PlanVersion = "", "", "", "", ""

	other := storagetest.Event("run", 9)
	other.PlanID = "other"
	other.IdempotencyKey = contract.DeriveKey(contract.Line2, "run", other.StepID, 1, 1, other.Type, "other", "v1")
	pause := storagetest.Event("elsewhere", 12)
	pause.TenantID, pause.Type, pause.StepID, pause.CausedBySignalID, pause.AttemptAssigned = "another", contract.RunPaused, "", "signal", true
	pause.SetAttempt(1)
	failed := endEvent("elsewhere", contract.RunFailed)
	failed.TenantID = "another"
	last, fence := uint64(2), uint64(0)
	return [][]storagetest.Request{
		{
			{Append: &storage.Append{RunID: "run", Create: create, Events: events[:2]}},
			{SetRef: &storagetest.SetRef{RunID: "run", Ref: "engine/1"}},
		},
		{{Append: &storage.Append{RunID: "run", Events: []contract.Event{other, events[0], events[2], events[3]}, ExpectedLastSeq: &last, Fence: &fence}}},
		{
			{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", 10, 1)}},
			{Append: &storage.Append{RunID: "elsewhere", Events: ofTenant("another", storagetest.Events("elsewhere", 0, 1))}},
			{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", 11, 1), AppendedBy: contract.Author{Name: "worker-7", TokenID: "0198c0de-0000-7000-8000-000000000007"}}},
			{Append: &storage.Append{RunID: "elsewhere", Events: []contract.Event{pause, failed}, OnlyNew: true}},
		},
	}
}

func ofTenant(id string, events []contract.Event) []contract.Event {
	for i := range events {
		events[i].TenantID = id
	}
	return events
}

// TestFormats compares what lies in the log and on disk with what earlier builds wrote, byte for
// byte: a difference is a change of format, which needs a new format version (D11,
// docs/formats.md). -update rewrites the files.
func TestFormats(t *testing.T) {
	l := open(t, storage.Options{})
	defer l.Close()
	var log, commands bytes.Buffer
	for i, requests := range goldenRequests() {
		for _, r := range requests {
			c, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&commands, "command\n%s\n", hex.Dump(storage.CommandBytes(c)))
		}
		if _, err := l.Propose(1_893_456_000_000_000_000+int64(i), requests); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&log, "proposal %d\n%s\n", i+1, hex.Dump(l.Entries[i].Data))
	}
	golden(t, "proposal", log.Bytes())
	golden(t, "command", commands.Bytes())

	rows, err := l.Store.Dump()
	if err != nil {
		t.Fatal(err)
	}
	tables := map[byte]string{
		'M': "change", 'a': "applied", 'b': "bucket", 'c': "chunk", 'e': "packed", 'h': "head", 'i': "place", 'k': "receipt",
		'm': "metadata", 'n': "identity", 'q': "attempt", 'r': "run", 't': "stamp", 'u': "tenant",
	}
	dumps := map[string]*bytes.Buffer{}
	for i := 0; i < len(rows); i += 2 {
		name, ok := tables[rows[i][0]]
		if !ok {
			t.Errorf("key %x is in no table", rows[i])
		}
		if dumps[name] == nil {
			dumps[name] = &bytes.Buffer{}
		}
		fmt.Fprintf(dumps[name], "key\n%svalue\n%s\n", hex.Dump(rows[i]), hex.Dump(rows[i+1]))
	}
	for _, name := range tables {
		if dumps[name] == nil {
			t.Errorf("no row of table %s", name)
			continue
		}
		golden(t, name, dumps[name].Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s changed; it is now\n%s\nand was\n%s", name, got, want)
	}
}
