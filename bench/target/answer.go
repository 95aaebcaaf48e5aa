package target

import (
	"errors"
	"fmt"

	"runlog/client"

	"google.golang.org/grpc/status"
)

// AnswerError is a call that succeeded with an answer that it must not have.
type AnswerError struct {
	Reason, Message string
}

func (e *AnswerError) Error() string { return e.Message }

// WrongAnswer returns an *AnswerError with a formatted message. Errors are counted by reason.
func WrongAnswer(reason, format string, args ...any) error {
	return &AnswerError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ReasonOf names an error in a way that errors can be counted by.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*AnswerError](err); ok {
		return e.Reason
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Name()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code().String()
	}
	return "ERROR"
}
