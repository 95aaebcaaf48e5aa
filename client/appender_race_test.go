package client

import (
	"errors"
	"sync"
	"testing"
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
