package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// story is one file of docs/quickstart.
type story struct {
	file, runID string
	events      []*runlogv1.EventWrite
}

func readStory(t testing.TB, file string) story {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs/quickstart", file+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s := story{file: file}
	for line := range bytes.Lines(text) {
		e, err := contract.ParseEvent(line)
		if err != nil {
			t.Fatalf("%s, line %d: %v", file, len(s.events)+1, err)
		}
		s.events = append(s.events, e)
	}
	s.runID = s.events[0].RunId
	return s
}

// appendStory appends a whole history and wants runSeq equal to the line number.
func (n *node) appendStory(s story) {
	n.t.Helper()
	resp := n.append(s.runID, s.events...)
	for i, r := range resp.Results {
		if r.RunSeq != uint64(i+1) || !r.Persisted || r.Idempotent {
			n.t.Fatalf("%s, line %d: %v", s.file, i+1, r)
		}
	}
}

func stepOf(s *runlogv1.RunSnapshot, id string) *runlogv1.StepSnapshot {
	for _, step := range s.Steps {
		if step.StepId == id {
			return step
		}
	}
	return nil
}

// stepLine puts what the README tells of a step into one line.
func stepLine(s *runlogv1.RunSnapshot, id string) string {
	p := stepOf(s, id)
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
		return clock(at)
	}
	return "-"
}

// clock is the time of day on 2026-02-11.
func clock(at time.Time) string {
	return strings.TrimPrefix(at.Format("2006-01-02T15:04:05.000Z"), "2026-02-11T")
}

// fold is a snapshot as of a runSeq, folded from the stored records.
type fold struct {
	*run.Snapshot
	substatus, message, digest string
}

func (n *node) foldTo(runID string, seq uint64) fold {
	n.t.Helper()
	v, err := n.server.replica.Store().View(runID)
	if err != nil {
		n.t.Fatal(err)
	}
	defer v.Close()
	var records []storage.Record
	for r, err := range v.Events(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		if r.RunSeq > seq {
			break
		}
		records = append(records, *r)
	}
	s := run.ReduceAll(nil, records)
	f := fold{Snapshot: s}
	f.substatus, f.message = s.Substatus(s.PersistedAt, run.DefaultDrainTimeout)
	digest := s.Digest()
	f.digest = hex.EncodeToString(digest[:])
	return f
}

// checkGolden compares a snapshot with testdata. Ids that the server made differ from time to time,
// and with them the digest.
func checkGolden(t testing.TB, s story, snapshot *runlogv1.RunSnapshot) {
	t.Helper()
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	m := parseObject(t, text)
	for _, d := range m["signals"].([]any) {
		d := d.(map[string]any)
		if !slices.ContainsFunc(s.events, func(e *runlogv1.EventWrite) bool { return e.EventId == d["eventId"] }) {
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
	path := filepath.Join("testdata/quickstart", s.file+".snapshot.json")
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
		t.Errorf("%s differs from %s; run the test with -update and look at the difference:\n%s", s.file, path, got.Bytes())
	}
}

// checkDigestPRJ1 makes the digest again from what HTTP served: without the members that are worked
// out when a snapshot is served, with times written as short as they go, in the order of RFC 8785.
func checkDigestPRJ1(t testing.TB, file string, snapshot map[string]any) {
	t.Helper()
	want := snapshot["digest"]
	if names, said := snapshot["fromMetadata"].([]any); said {
		for _, name := range names {
			delete(snapshot, name.(string)) // PRJ-16
		}
	}
	for _, name := range []string{"digest", "stale", "substatus", "message", "labels", "fromMetadata"} {
		delete(snapshot, name)
	}
	var shorten func(v any) any
	shorten = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				// expiresAt is the producer's text
				if strings.HasSuffix(name, "At") && name != "expiresAt" {
					at, err := time.Parse(time.RFC3339Nano, member.(string))
					if err != nil {
						t.Fatal(err)
					}
					v[name] = at.Format(time.RFC3339Nano)
					continue
				}
				v[name] = shorten(member)
			}
		case []any:
			for i := range v {
				v[i] = shorten(v[i])
			}
		}
		return v
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b) // sorts members
	e.SetEscapeHTML(false)
	if err := e.Encode(shorten(snapshot)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	wantEqual(t, file+": digest from what was served (PRJ-1)", hex.EncodeToString(sum[:]), want.(string))
	snapshot["digest"] = want
}
