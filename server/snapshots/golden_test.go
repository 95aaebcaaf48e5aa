package snapshots_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// stepLine puts what the README tells of a step into one line.
func stepLine(s *runlogv1.RunSnapshot, id string) string {
	p := servertest.StepOf(s, id)
	line := fmt.Sprintf("%s %d/%d %s %s %d artifacts", p.Status, p.LogicalAttemptId, p.GetEngineAttemptId(),
		optionalClock(p.StartedAt), optionalClock(p.CompletedAt), len(p.Artifacts))
	if p.Error != nil {
		line += " " + errorText(p.Error)
	}
	for _, a := range p.Attempts {
		line += fmt.Sprintf(" [%d/%d %s %s %s %s]", a.LogicalAttemptId, a.GetEngineAttemptId(), a.Status,
			optionalClock(a.StartedAt), optionalClock(a.CompletedAt), errorText(a.Error))
	}
	return line
}

func errorText(e *runlogv1.StepError) string {
	retry := "final"
	if e.GetRetryable() {
		retry = "retryable"
	}
	return e.GetCode() + " " + e.GetCategory() + " " + retry
}

func optionalClock(t interface{ AsTime() time.Time }) string {
	if at := t.AsTime(); at.Unix() != 0 {
		return servertest.Clock(at)
	}
	return "-"
}

// fold is a snapshot as of a runSeq, folded from the stored records.
type fold struct {
	*run.Snapshot
	substatus, message, digest string
}

func foldTo(n *servertest.Node, runID string, seq uint64) fold {
	n.T.Helper()
	v, err := n.Server.Internals().Replica.Store().View(runID)
	if err != nil {
		n.T.Fatal(err)
	}
	defer v.Close()
	var records []storage.Record
	for r, err := range v.Events(0) {
		if err != nil {
			n.T.Fatal(err)
		}
		if r.RunSeq > seq {
			break
		}
		records = append(records, *r)
	}
	s := run.ReduceAll(nil, records)
	f := fold{Snapshot: s}
	f.substatus, f.message = s.Drain().Substatus(s.PersistedAt, run.DefaultDrainTimeout)
	digest := s.Digest()
	f.digest = hex.EncodeToString(digest[:])
	return f
}

// checkGolden compares a snapshot with testdata. Ids that the server made differ from time to time,
// and with them the digest.
func checkGolden(t testing.TB, s servertest.Story, snapshot *runlogv1.RunSnapshot) {
	t.Helper()
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	m := servertest.ParseObject(t, text)
	for _, d := range m["signals"].([]any) {
		d := d.(map[string]any)
		if !slices.ContainsFunc(s.Events, func(e *runlogv1.EventWrite) bool { return e.EventId == d["eventId"] }) {
			d["eventId"], m["digest"] = "made by the server", "varies"
		}
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata/quickstart", s.File+".snapshot.json")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs from %s; run the test with -update and look at the difference:\n%s", s.File, path, got.Bytes())
	}
}
