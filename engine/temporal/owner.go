package temporal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"runlog/engine"
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

// refMemo is the note of a workflow that has the reference of its run. Continuations keep it.
const refMemo = "engineRunRef"

// find describes the workflow of a reference. *ForeignError: the one with its id is not that of the
// run.
func (e *Engine) find(ctx context.Context, ref string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
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
	of := text(info.GetMemo().GetFields()[refMemo])
	if info.GetType().GetName() != WorkflowType || of != ref && (of != "" || at.namespaceID != "") {
		return nil, e.foreign(info)
	}
	return d, nil
}

// foreign tells of a workflow that is not that of a run.
func (e *Engine) foreign(info *workflowpb.WorkflowExecutionInfo) *ForeignError {
	return &ForeignError{Namespace: e.o.Namespace, WorkflowID: info.GetExecution().GetWorkflowId(), Type: info.GetType().GetName(),
		Ref: text(info.GetMemo().GetFields()[refMemo])}
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
	// Ref is the reference of the run that it is of; empty: it names none.
	Ref string
}

// Error names the workflow and whose it is.
func (e *ForeignError) Error() string {
	whose := fmt.Sprintf("has the type %.100q, and not %q", e.Type, WorkflowType)
	if e.Type == WorkflowType {
		whose = fmt.Sprintf("is of the reference %.300q", e.Ref)
	}
	return fmt.Sprintf("temporal: the workflow %q of the namespace %q is not that of the run: it %s", e.WorkflowID, e.Namespace, whose)
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
