package rerun

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
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract/jsontext"
)

// Code is that of the error of a run that cannot take over what it reruns.
const Code = "RERUN_REFUSED"

// Source has the runs that are rerun, and what their steps have left.
type Source struct {
	Log replay.Log
	// Blobs has the artifacts of steps. nil: each is taken for there.
	Blobs blob.Opener
}

// TakeOver calls add for each step that a run takes over from the run that it reruns, in the order
// of the plan. A run that is no rerun, or one of whose steps has begun, takes over nothing. A step
// that an event of the run has named is left out: an engine that was killed meanwhile has appended
// some of them.
//
// own makes the events of the run. A run of another tenant, project or environment is not there for
// it: the payload of an event has named that one, and the engine may read all tenants (SEC-4).
//
// add appends the StepCompleted of the step, unless the log has an event of it now. An error of add
// ends the call. A *engine.PermanentError with Code says why the run can never take over the steps.
func (s Source) TakeOver(ctx context.Context, own *events.Run, state *replay.State, p *plan.Plan,
	add func(stepID string, payload json.RawMessage) error) error {
	of := state.RerunOf()
	begun := func(s *replay.Step) bool { return s.Started != nil || s.Waiting != nil }
	if of == "" || slices.ContainsFunc(state.Steps, begun) {
		return nil
	}
	source, err := s.read(ctx, of, own)
	if e, ok := errors.AsType[*client.Error](err); errors.Is(err, errForeign) || ok && e.Reason == client.ReasonRunNotFound {
		return Refused("run %.100q, which is to be rerun, is not in the log any more: request a run of the plan instead", of)
	}
	if err != nil {
		return err
	}
	taken, err := source.Taken(p)
	if err != nil {
		return err
	}
	taken = slices.DeleteFunc(taken, func(s *replay.Step) bool { return state.Step(s.ID) != nil })
	for _, step := range taken {
		if err := s.hasArtifacts(ctx, step); err != nil {
			return err
		}
	}
	for _, step := range taken {
		payload, err := takenOver(of, step)
		if err != nil {
			return err
		}
		err = add(step.ID, payload)
		if why, refused := executor.Refused(err); refused {
			return Refused("the log refuses the output of step %.100q of run %.100q: %s: request a run of the plan instead", step.ID, of, why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Refused is the error of a run that can never take over the steps of another one.
func Refused(format string, args ...any) error {
	return &engine.PermanentError{Code: Code, Err: fmt.Errorf("rerun: "+format, args...)}
}

// errForeign says that the run that is rerun is of another scope.
var errForeign = errors.New("rerun: the run is of another tenant, project or environment")

// read returns the state of the run that is rerun.
func (s Source) read(ctx context.Context, runID string, own *events.Run) (*replay.State, error) {
	state := replay.New()
	for e, err := range s.Log.ReadEvents(ctx, replay.Request(runID, 0)) {
		if err != nil {
			return nil, err
		}
		if e.GetTenantId() != own.Tenant || e.GetProjectId() != own.Project || e.GetEnvironmentId() != own.Environment {
			return nil, errForeign
		}
		state.Apply(e)
	}
	return state, nil
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

// marshal returns the JSON of a value, whose texts stay as they are: the payload of another run has
// just room for where it is from.
func marshal(v any) (json.RawMessage, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// hasArtifacts refuses a step whose artifacts have expired or are gone. What is in a store that the
// engine may not read is taken for there.
func (s Source) hasArtifacts(ctx context.Context, step *replay.Step) error {
	for _, a := range artifactsOf(step.Ended) {
		if !a.expiresAt.IsZero() && time.Now().After(a.expiresAt) {
			return Refused("the artifact %.200q of step %.100q has expired: request a run of the plan instead", blob.Shown(a.uri), step.ID)
		}
		if s.Blobs == nil {
			continue
		}
		r, err := s.Blobs.Open(ctx, a.uri)
		if errors.Is(err, fs.ErrNotExist) {
			return Refused("the artifact %.200q of step %.100q is gone: restore it, or request a run of the plan instead", blob.Shown(a.uri), step.ID)
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
