package executor

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
)

// Completed is the payload of the StepCompleted of a result. Its output is what later steps get. Of
// the artifacts, the snapshot has uri, kind, sha256 and sizeBytes (PRJ-5).
func Completed(r Result) map[string]any {
	type ref struct {
		Name      string `json:"name"`
		Kind      string `json:"kind"`
		URI       string `json:"uri"`
		SHA256    string `json:"sha256"`
		SizeBytes int64  `json:"sizeBytes"`
	}
	var refs []ref
	for _, a := range r.Artifacts {
		refs = append(refs, ref{a.Name, "file", a.URI, a.SHA256, a.Bytes})
	}
	p := map[string]any{"output": r.Output}
	if len(refs) > 0 {
		p["artifacts"] = refs
	}
	return p
}

// Failed is the payload of the StepFailed of an error.
func Failed(e *Error) map[string]any {
	return map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message, "retryable": e.Kind == Retryable}}
}

// Retrying is the payload of the StepRetrying of an error, whose step the platform tries again at a
// time (IDM-11).
func Retrying(e *Error, at time.Time) map[string]any {
	p := Failed(e)
	p["nextAttemptAt"] = at.UTC().Format(time.RFC3339Nano)
	return p
}

// Refused returns why the log refuses what an event says, such as a secret in an output or in the
// text of an error; false: it does not.
func Refused(err error) (why string, refused bool) {
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return e.Message, true
	}
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == codes.InvalidArgument {
		return e.Message, true
	}
	return "", false
}

// Untold takes the place of an error whose text the log refuses.
func (e *Error) Untold() *Error {
	return &Error{Kind: e.Kind, Code: CodeFailed, Message: "the log refuses the text of the error: see the logs of the step"}
}
