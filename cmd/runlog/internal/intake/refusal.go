package intake

import (
	"strconv"
	"strings"

	"runlog/client/command/session"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
)

// explainLine formats the faults that the contract found in one line of input.
func explainLine(e *contract.Error) string {
	var violations []client.Violation
	for _, v := range e.Violations {
		violations = append(violations, client.Violation{Field: v.Field, Reason: v.Reason, Description: v.Description})
	}
	return session.Refusal(string(e.Reason), e.Message, violations)
}

// refusesInput reports whether the server refused the request itself. Otherwise it failed to take
// it, or the run is another worker's.
func refusesInput(e *client.Error) bool {
	if e.Reason == contract.ReasonLeaseLost {
		return false
	}
	switch e.Code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange:
		return true
	case codes.ResourceExhausted:
		return !e.Retryable() // gRPC: the message is too large.
	default:
		return false
	}
}

// refusedEvents returns why events of a request of n were refused, by index. It is empty if the
// server names none of them.
func refusedEvents(e *client.Error, n int) map[int]string {
	byIndex := make(map[int][]client.Violation)
	for _, v := range e.Violations {
		if index, field, ok := splitEventPath(v.Field); ok && index < n {
			v.Field = field
			byIndex[index] = append(byIndex[index], v)
		}
	}
	why := make(map[int]string)
	for index, violations := range byIndex {
		reason := violations[0].Reason
		if reason == "" {
			reason = e.Reason
		}
		why[index] = session.Refusal(string(reason), e.Message, violations)
	}
	index, err := strconv.Atoi(e.Metadata["index"])
	if err == nil && index >= 0 && index < n && why[index] == "" {
		why[index] = session.Refusal(e.Name(), e.Message, nil)
	}
	return why
}

// splitEventPath splits "events[3].stepId" into 3 and "stepId".
func splitEventPath(path string) (index int, field string, ok bool) {
	rest, ok := strings.CutPrefix(path, "events[")
	if !ok {
		return 0, "", false
	}
	digits, field, ok := strings.Cut(rest, "]")
	if !ok {
		return 0, "", false
	}
	index, err := strconv.Atoi(digits)
	if err != nil || index < 0 {
		return 0, "", false
	}
	return index, strings.TrimPrefix(field, "."), true
}
