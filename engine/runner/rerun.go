package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/replay"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// takeOver appends the ends of the steps that have succeeded in the run that this one reruns. A
// worker that was killed meanwhile has appended some of them.
func (x *execution) takeOver(ctx context.Context) error {
	of := x.state.RerunOf()
	begun := func(s *replay.Step) bool { return s.Started != nil || s.Waiting != nil }
	if of == "" || slices.ContainsFunc(x.state.Steps, begun) {
		return nil
	}
	source := replay.New()
	err := read(ctx, x.o.Client, of, source)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Reason == client.ReasonRunNotFound {
		return refusedRerun("run %.100q, which is to be rerun, is not in the log any more: request a run of the plan instead", of)
	}
	if err != nil {
		return err
	}
	taken, err := source.Taken(x.plan)
	if err != nil {
		return err
	}
	taken = slices.DeleteFunc(taken, func(s *replay.Step) bool { return x.state.Step(s.ID) != nil })
	for _, s := range taken {
		if err := x.hasArtifacts(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range taken {
		payload, err := takenOver(of, s)
		if err != nil {
			return err
		}
		err = x.writeWhile(ctx, func() bool { return x.state.Step(s.ID) == nil }, func() (*runlogv1.EventWrite, error) {
			return x.named.StepCompleted(s.ID, once, payload)
		})
		if why, refused := executor.Refused(err); refused {
			return refusedRerun("the log refuses the output of step %.100q of run %.100q: %s: request a run of the plan instead", s.ID, of, why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func refusedRerun(format string, args ...any) error {
	return &engine.PermanentError{Code: "RERUN_REFUSED", Err: fmt.Errorf("runner: "+format, args...)}
}

// takenOver is the payload of the StepCompleted of a step that has succeeded in another run: that
// of its end there, and where it is from.
func takenOver(runID string, s *replay.Step) (json.RawMessage, error) {
	var p map[string]json.RawMessage
	_ = json.Unmarshal(s.Ended, &p) // The log has it as a JSON object, or without a payload.
	if p == nil {
		p = map[string]json.RawMessage{}
	}
	from, err := marshal(map[string]any{"runId": runID, "runSeq": s.EndedSeq, "logicalAttemptId": s.Attempt})
	if err != nil {
		return nil, err
	}
	p["takenFrom"] = from
	return marshal(p)
}

// hasArtifacts refuses a step whose artifacts have expired or are gone. What is in a store that the
// runner may not read is taken for there.
func (x *execution) hasArtifacts(ctx context.Context, s *replay.Step) error {
	for _, a := range artifactsOf(s.Ended) {
		if !a.expiresAt.IsZero() && time.Now().After(a.expiresAt) {
			return refusedRerun("the artifact %.200q of step %.100q has expired: request a run of the plan instead", blob.Shown(a.uri), s.ID)
		}
		r, err := x.o.Blobs.Open(ctx, a.uri)
		if errors.Is(err, fs.ErrNotExist) {
			return refusedRerun("the artifact %.200q of step %.100q is gone: restore it, or request a run of the plan instead", blob.Shown(a.uri), s.ID)
		}
		if failed, ok := errors.AsType[*blob.Error](err); ok && failed.Retryable() {
			return err
		}
		if err == nil {
			_ = r.Close() // It was read.
		}
	}
	return nil
}

// artifactRef is an artifact of a step that is taken over. expiresAt is zero if nothing says a
// time.
type artifactRef struct {
	uri       string
	expiresAt time.Time
}

// artifactsOf returns the artifacts of a payload that a snapshot shows, as it reads them (ENV-12):
// by the names as they are written, each by itself, and with the times of RFC 3339. encoding/json
// would take Uri for uri, and stop at the first time that it does not know.
func artifactsOf(payload json.RawMessage) (list []artifactRef) {
	array, _ := jsontext.Lookup(payload, "artifacts")
	if !bytes.HasPrefix(array, []byte("[")) {
		array, _ = jsontext.Lookup(payload, "artifactRefs")
	}
	c := jsontext.Elements(array)
	for a, more := c.Element(); more; a, more = c.Element() {
		uri, _ := jsontext.Lookup(a, "uri")
		expires, _ := jsontext.Lookup(a, "expiresAt")
		at, _, _ := jsontext.Time([]byte(jsontext.Text(expires)))
		if uri := jsontext.Text(uri); uri != "" {
			list = append(list, artifactRef{uri, at})
		}
	}
	return list
}
