package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/replica/batch"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

// errorDomain is the domain of every google.rpc.ErrorInfo (docs/contract.md, Errors).
const errorDomain = "runlog"

// OverloadDelay is the retry delay for an overloaded caller. A queue of 64 MiB is empty after about
// that time.
const OverloadDelay = 250 * time.Millisecond

// unavailableDelay is the retry delay while the cluster cannot serve. An election takes about that
// time.
const unavailableDelay = 500 * time.Millisecond

// Status converts an error of the packages below into the gRPC status of the contract.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if e := AsContract(err); e != nil {
		return Encode(e)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// AsContract is the one table from errors to reasons. It returns nil for an error without a reason.
func AsContract(err error) *contract.Error {
	var (
		own      *contract.Error
		notFound *storage.RunNotFoundError
		exists   *storage.RunExistsError
		previous *metadata.PreviousError
		sequence *storage.SequenceError
		lease    *storage.LeaseLostError
		scope    *storage.ScopeError
		unscoped *storage.UnscopedError
		imported *storage.ImportError
		attempt  *storage.AttemptError
		taken    *storage.KeyTakenError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &notFound):
		return runNotFound(notFound.RunID)
	case errors.As(err, &exists):
		return runExists(exists)
	case errors.As(err, &previous):
		return &contract.Error{Reason: contract.ReasonRunAlreadyExists,
			Message:  previous.Error() + ". Read the run, and name its present reference as previousEngineRunRef.",
			Metadata: map[string]string{"run_id": previous.RunID, "fields": "engineRunRef", "engine_run_ref": previous.Current}}
	case errors.As(err, &sequence):
		return &contract.Error{Reason: contract.ReasonSequenceConflict,
			Message: Helpful(contract.ReasonSequenceConflict, sequence.Error()),
			Metadata: map[string]string{
				"run_id":            sequence.RunID,
				"last_seq":          strconv.FormatUint(sequence.Last, 10),
				"expected_last_seq": strconv.FormatUint(sequence.Expected, 10),
			}}
	case errors.As(err, &lease):
		return &contract.Error{Reason: contract.ReasonLeaseLost,
			Message: Helpful(contract.ReasonLeaseLost, lease.Error()),
			Metadata: map[string]string{
				"run_id":        lease.RunID,
				"fence":         strconv.FormatUint(lease.Given, 10),
				"current_fence": strconv.FormatUint(lease.Current, 10),
			}}
	case errors.As(err, &scope):
		return scopeMismatch(scope)
	case errors.As(err, &unscoped):
		return unscopedRun(unscoped)
	case errors.As(err, &attempt), errors.As(err, &taken):
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: OverloadDelay,
			Message: "other requests for the run were stored first until the call ended; this one was not stored"}
	case errors.As(err, &imported):
		return importRefused(imported)
	default:
		return asUnavailable(err)
	}
}

func asUnavailable(err error) *contract.Error {
	switch {
	case errors.Is(err, batch.ErrOverloaded):
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: OverloadDelay,
			Message: "the node's append queue is full; nothing was stored"}
	case errors.Is(err, batch.ErrClosed):
		return &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; nothing was stored"}
	case errors.Is(err, batch.ErrAbandoned):
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: true,
			Message: "the call ended before the answer; the events may be stored or not"}
	case errors.Is(err, raft.ErrTooLarge):
		return &contract.Error{Reason: contract.ReasonPayloadTooLarge, Message: "the request is too large; send fewer events at a time"}
	case errors.Is(err, raft.ErrNotLeader):
		return &contract.Error{Reason: contract.ReasonNoLeader, Message: "the node does not lead now; nothing was stored"}
	case errors.Is(err, raft.ErrUnknown):
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown,
			Message: "the node lost leadership or stopped itself; the events may be stored or not"}
	default:
		return asUpgrade(err)
	}
}

// asUpgrade converts the errors of operations that a member may not know. The proposer returns them
// before anything is stored.
func asUpgrade(err error) *contract.Error {
	var (
		level   *storage.LevelError
		unknown *storage.UnknownOperationError
	)
	switch {
	case errors.As(err, &level):
		return upgradeFirst(fmt.Sprintf("operation of kind %d needs feature level %d, the cluster is at level %d", level.Kind, level.Needs, level.Level))
	case errors.As(err, &unknown):
		return upgradeFirst(fmt.Sprintf("operation of kind %d is unknown to the leader's build, which supports feature levels up to %d",
			unknown.Kind, unknown.Supports))
	default:
		return nil
	}
}

// upgradeFirst refuses what a member may not know yet.
func upgradeFirst(why string) *contract.Error {
	return &contract.Error{Reason: contract.ReasonUpgradeIncomplete, Message: Helpful(contract.ReasonUpgradeIncomplete, why)}
}

// Helpful appends the remedy of a reason to a message.
func Helpful(r contract.Reason, message string) string { return message + ". " + r.Info().Help }

func runNotFound(runID string) *contract.Error {
	return &contract.Error{Reason: contract.ReasonRunNotFound,
		Message:  Helpful(contract.ReasonRunNotFound, "run "+strconv.Quote(runID)+" does not exist"),
		Metadata: map[string]string{"run_id": runID}}
}

func runExists(e *storage.RunExistsError) *contract.Error {
	out := &contract.Error{Reason: contract.ReasonRunAlreadyExists,
		Message:  Helpful(contract.ReasonRunAlreadyExists, e.Error()),
		Metadata: map[string]string{"run_id": e.RunID}}
	if e.Exclusive() {
		out.Message = e.Error() + ". Choose another runId, or leave mode out."
	}
	if len(e.Fields) > 0 {
		out.Metadata["fields"] = strings.Join(e.Fields, ",")
	}
	if e.NewEvent > 0 {
		out.Metadata["index"] = strconv.Itoa(e.NewEvent - 1)
	}
	return out
}

func scopeMismatch(e *storage.ScopeError) *contract.Error {
	out := &contract.Error{Reason: contract.ReasonRunScopeMismatch,
		Message:  Helpful(contract.ReasonRunScopeMismatch, e.Error()),
		Metadata: map[string]string{"run_id": e.RunID, "field": e.Field, "run_" + snake(e.Field): e.Want}}
	if e.Index >= 0 {
		out.Metadata["index"] = strconv.Itoa(e.Index)
	}
	return out
}

func snake(field string) string {
	return map[string]string{"tenantId": "tenant_id", "projectId": "project_id", "environmentId": "environment_id"}[field]
}

func unscopedRun(e *storage.UnscopedError) *contract.Error {
	out := &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: e.Error(),
		Metadata: map[string]string{"run_id": e.RunID, "index": "0"}}
	for _, field := range e.Fields {
		out.Violations = append(out.Violations, contract.Violation{
			Field: "events[0]." + field, Reason: contract.ReasonInvalidArgumentField,
			Description: "is required on the first event of a run: name it on the envelope, or in the context of a 1.1 RunStarted (ENV-1)",
		})
	}
	return out
}

// Invalid returns the error for one invalid field of a request.
func Invalid(field, description string) *contract.Error {
	return &contract.Error{Reason: contract.ReasonInvalidArgumentField,
		Message: strings.TrimPrefix(field+" "+description, " "),
		Violations: []contract.Violation{
			{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: description},
		}}
}

const (
	// TrailerBudget bounds the violations in one error, in bytes. They travel in a trailer, whose
	// encoding adds a third. Clients in other languages accept at most 8 KiB of trailers.
	TrailerBudget = 4 << 10
	// BatchBudget bounds the violations of all answers of one BatchAppend. With them the answer
	// stays within the 4 MiB that clients accept.
	BatchBudget = 1 << 20
	// maxShortened bounds one text of an error.
	maxShortened = 1 << 10
)

// Encode writes the error as google.rpc.Status with its details.
func Encode(e *contract.Error) error { return EncodeWithin(e, TrailerBudget) }

// EncodeWithin is Encode with a budget in bytes for the violations. It encodes at least one. If it
// leaves some out, it sets truncated in the metadata, as contract.NewError does.
func EncodeWithin(e *contract.Error, budget int) error {
	st := status.New(e.Code(), shortened(e.Message))
	info := &errdetails.ErrorInfo{Reason: string(e.Reason), Domain: errorDomain, Metadata: e.Metadata}
	details := []protoadapt.MessageV1{info}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for i, v := range e.Violations {
			row := &errdetails.BadRequest_FieldViolation{
				Field: shortened(v.Field), Description: shortened(v.Description), Reason: string(v.Reason),
			}
			if budget -= proto.Size(row); budget < 0 && i > 0 {
				info.Metadata = maps.Clone(e.Metadata)
				if info.Metadata == nil {
					info.Metadata = map[string]string{}
				}
				info.Metadata["truncated"] = "true"
				break
			}
			bad.FieldViolations = append(bad.FieldViolations, row)
		}
		details = append(details, bad)
	}
	delay := e.RetryAfter
	if delay == 0 && e.Code() == codes.Unavailable {
		delay = unavailableDelay
	}
	if delay > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	full, err := st.WithDetails(details...)
	if err != nil {
		return st.Err()
	}
	return full.Err()
}

// Within is EncodeWithin for any error of a part of a call, also for one that the leader has
// encoded with the budget of a whole call.
func Within(err error, budget int) *status.Status {
	if own := AsContract(err); own != nil {
		return status.Convert(EncodeWithin(own, budget))
	}
	st := status.Convert(Status(err))
	var details []protoadapt.MessageV1
	var info *errdetails.ErrorInfo
	cut := false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			for i, row := range d.FieldViolations {
				if budget -= proto.Size(row); budget < 0 && i > 0 {
					d.FieldViolations, cut = d.FieldViolations[:i], true
					break
				}
			}
		}
		m, ok := d.(protoadapt.MessageV1)
		if !ok {
			return st // of another build
		}
		details = append(details, m)
	}
	if !cut || info == nil {
		return st
	}
	if info.Metadata == nil {
		info.Metadata = map[string]string{}
	}
	info.Metadata["truncated"] = "true"
	if short, err := status.New(st.Code(), st.Message()).WithDetails(details...); err == nil {
		return short
	}
	return st
}

// shortened cuts a text of an error to maxShortened bytes. All texts are UTF-8.
func shortened(text string) string {
	if len(text) <= maxShortened {
		return text
	}
	return strings.ToValidUTF8(text[:maxShortened], "") + "…"
}

// InEvent returns a violation with the path of an event, by its number in the request.
func InEvent(i int, v contract.Violation) contract.Violation {
	path := "events[" + strconv.Itoa(i) + "]"
	if v.Field != "" {
		path += "." + v.Field
	}
	v.Field = path
	return v
}

// importRefused describes how an import conflicts with stored events.
func importRefused(e *storage.ImportError) *contract.Error {
	out := &contract.Error{Reason: contract.ReasonSequenceConflict, Message: e.Error(), Metadata: map[string]string{
		"run_id": e.RunID, "index": strconv.Itoa(e.Index), "last_seq": strconv.FormatUint(e.Before, 10),
	}}
	why := fmt.Sprintf("is %d, and must be above %d, where the run is: nothing can be put in front of what is stored", e.Given, e.Before)
	if e.Field == "idempotencyKey" {
		out.Reason = contract.ReasonRunAlreadyExists
		why = "is that of another event of the run, which is stored or comes before it in the request"
	}
	out.Violations = []contract.Violation{InEvent(e.Index, contract.Violation{Field: e.Field, Reason: out.Reason, Description: why})}
	return out
}

// reasonIn returns the reason in a status; empty: it has none, and does not come from a service of
// runlog.
func reasonIn(st *status.Status) contract.Reason {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == errorDomain {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

// isNotLeader reports whether a call was refused, with nothing stored, because another node must be
// asked.
func isNotLeader(st *status.Status) bool {
	switch reasonIn(st) {
	case contract.ReasonNotLeader, contract.ReasonNoLeader, contract.ReasonShuttingDown:
		return true
	default:
		return false
	}
}

// TooManyStreams returns the error of a node that serves its maximum of streams (D12).
func TooManyStreams() *contract.Error {
	return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
		Message: "the node serves its maximum of streams: close some that are not needed, or open this one at another node"}
}
