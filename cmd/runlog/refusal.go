package main

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
)

// maxViolationsShown keeps an error a line that can be read.
const maxViolationsShown = 5

// explainReason puts a refusal on one line. Violations say what is wrong and what to do for each
// field, the message only for the first.
func explainReason(reason, message string, violations []client.Violation) string {
	if len(violations) == 0 {
		return reason + ": " + message
	}
	var parts []string
	for _, v := range violations[:min(len(violations), maxViolationsShown)] {
		parts = append(parts, strings.TrimSpace(v.Field+" "+v.Description))
	}
	if more := len(violations) - len(parts); more > 0 {
		parts = append(parts, "and "+number(more)+" more")
	}
	return reason + ": " + strings.Join(parts, "; ")
}

// explainLine is explainReason for what the contract found in one line of input.
func explainLine(e *contract.Error) string {
	var violations []client.Violation
	for _, v := range e.Violations {
		violations = append(violations, client.Violation{Field: v.Field, Reason: string(v.Reason), Description: v.Description})
	}
	return explainReason(string(e.Reason), e.Message, violations)
}

// refusesInput tells a refusal of what was sent from a failure to take it.
func refusesInput(e *client.Error) bool {
	switch e.Code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange:
		return true
	case codes.ResourceExhausted:
		return !e.Retryable() // gRPC: the message is too large
	default:
		return false
	}
}

// refusedEvents returns why the events of a request of n were refused, by index; empty when the
// server blamed none of them.
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
		why[index] = explainReason(reason, e.Message, violations)
	}
	index, err := strconv.Atoi(e.Metadata["index"])
	if err == nil && index >= 0 && index < n && why[index] == "" {
		why[index] = explainReason(e.Reason, e.Message, nil)
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
