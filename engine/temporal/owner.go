package temporal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
)

const refPrefix = "temporal://"

// refOf returns the reference of a run. Two Temporal servers may have namespaces of one name, but
// none of one id. A run is one workflow, whatever the number of its continuations, so the reference
// stays the same until another Temporal server adopts the run.
func refOf(namespaceID, namespace, workflowID string) string {
	return refPrefix + namespaceID + "/" + namespace + "/" + workflowID
}

// address is what a reference says. Earlier versions gave no id of the namespace.
type address struct{ namespaceID, workflowID string }

// address returns that of a reference of the engine's namespace, or of one of the same name.
func (e *Engine) address(ref string) (at address, ok bool) {
	rest, ok := strings.CutPrefix(ref, refPrefix)
	if id, behind, _ := strings.Cut(rest, "/"); uuid.Validate(id) == nil {
		at.namespaceID, rest = id, behind
	}
	at.workflowID, _ = strings.CutPrefix(rest, e.o.Namespace+"/")
	return at, ok && at.workflowID != "" && at.workflowID != rest
}

// namespaceID asks Temporal for the id of the namespace. It asks each time: the address of a
// Temporal server may lead to another one later.
func (e *Engine) namespaceID(ctx context.Context) (string, error) {
	d, err := e.o.Temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: e.o.Namespace})
	if err != nil {
		return "", fmt.Errorf("temporal: cannot ask Temporal for the id of the namespace %q: %w", e.o.Namespace, err)
	}
	return d.GetNamespaceInfo().GetId(), nil
}

// The notes of a workflow say whose it is. Continuations keep them.
const (
	refMemo     = "engineRunRef"
	createdMemo = "runCreatedAt" // two logs may have runs of one id, but hardly of one moment
)

// memo returns the notes of the workflow of a run.
func memo(run *runlogv1.Run, ref string) map[string]any {
	return map[string]any{refMemo: ref, createdMemo: createdAt(run)}
}

func createdAt(run *runlogv1.Run) string { return run.GetCreatedAt().AsTime().Format(time.RFC3339Nano) }

// find describes the workflow of a reference, for a run that was created at a time; empty: the
// caller does not know it. *ForeignError: the workflow with its id is not that of the run.
func (e *Engine) find(ctx context.Context, ref, created string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	at, ok := e.address(ref)
	if !ok {
		return nil, fmt.Errorf("temporal: %.100q is no reference of the namespace %q: %w", ref, e.o.Namespace, engine.ErrNoRun)
	}
	d, err := e.o.Temporal.DescribeWorkflowExecution(ctx, at.workflowID, "")
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return nil, fmt.Errorf("%w: %w", engine.ErrNoRun, err)
	}
	if err != nil {
		return nil, err
	}
	info := d.GetWorkflowExecutionInfo()
	notes := info.GetMemo().GetFields()
	got := ForeignError{e.o.Namespace, at.workflowID, info.GetType().GetName(), text(notes[refMemo]), text(notes[createdMemo])}
	switch {
	case got.Type != WorkflowType:
		return nil, &got
	case at.namespaceID == "": // Workflows of earlier versions have no notes.
	case got.Ref != ref, created != "" && got.RunCreatedAt != created:
		return nil, &got
	}
	return d, nil
}

// text returns a text that a workflow shows; empty: it has none.
func text(p *commonpb.Payload) (s string) {
	if p == nil || converter.GetDefaultDataConverter().FromPayload(p, &s) != nil {
		return ""
	}
	return s
}

// ForeignError says that a workflow with the id of one of a run is not that of the run.
type ForeignError struct {
	Namespace, WorkflowID, Type string
	// Ref is the reference of the run that it is of, and RunCreatedAt when that was created; empty:
	// it does not say so.
	Ref, RunCreatedAt string
}

// codeForeign is that of the error in RunFailed.
const codeForeign = "ENGINE_FOREIGN"

// Error names the workflow, whose it is, and what to do.
func (e *ForeignError) Error() string {
	whose := fmt.Sprintf("its type is %.100q, and that of runs is %q", e.Type, WorkflowType)
	if e.Type == WorkflowType {
		whose = fmt.Sprintf("it is that of a run with the reference %.300q, which was created at %q", e.Ref, e.RunCreatedAt)
	}
	return fmt.Sprintf("temporal: the workflow %q of the namespace %q is not that of the run: %s: request the run with another id, or start the worker with another --workflow-prefix",
		e.WorkflowID, e.Namespace, whose)
}

// Unwrap returns that the engine does not have the run.
func (e *ForeignError) Unwrap() error { return engine.ErrNoRun }

// LostError says that Temporal does not have the workflow of a run that goes on.
type LostError struct {
	Ref string
	// Namespace and NamespaceID are those of the engine.
	Namespace, NamespaceID string
	// Here: the reference is one of the same namespace.
	Here bool
}

// Error says what is seen, and what to do.
func (e *LostError) Error() string {
	if e.Here {
		return fmt.Sprintf("temporal: there is no workflow of the reference %q any more: CANCEL the run, or start it again where the log ends with \"runlog-temporal sweep --adopt\"", e.Ref)
	}
	return fmt.Sprintf("temporal: there is no workflow of the reference %q: the namespace %q of this Temporal server has the id %s: "+
		"name the server of the run with --temporal; if that is gone for good, \"runlog-temporal sweep --adopt\" starts the run here, where the log ends",
		e.Ref, e.Namespace, e.NamespaceID)
}
