package client

import (
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestNewAppenderDuringClose: an Appender that is made while its Client closes is closed too.
func TestNewAppenderDuringClose(t *testing.T) {
	for range 200 {
		c := dialFakes(t, Options{}, "nobody", nil)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				a, err := c.NewAppender(AppenderOptions{})
				if err == nil {
					_, err = a.Append(t.Context(), event("r"))
				}
				if !errors.Is(err, ErrClosed) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Go(func() { c.Close() })
		all.Wait()
	}
}

// TestDelayIsNeverNegative: a delay beyond all time does not become none.
func TestDelayIsNeverNegative(t *testing.T) {
	e := ErrorOf(status.Convert(refusal(codes.ResourceExhausted, "OVERLOADED", "", nil, retryAfter(1<<63-1))))
	for range 100 {
		if wait := new(Options{}.EnsureDefaults()).delay(e, 1); wait < time.Hour {
			t.Fatalf("the wait is %v", wait)
		}
	}
}
