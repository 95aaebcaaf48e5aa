package attempt_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/subscriptions/sink/attempt"
)

var errLate = errors.New("late")

func newGroup() *attempt.Group {
	return attempt.NewGroup(attempt.Options{Timeout: 10 * time.Second, Late: func() error { return errLate }})
}

// TestOutcomeBUS4 has the ways in which an attempt ends, and when.
func TestOutcomeBUS4(t *testing.T) {
	t.Parallel()
	refused := &attempt.PermanentError{Err: errors.New("too large")}
	// It does not look at its context.
	stuck := func(context.Context) error { time.Sleep(time.Minute); return nil }
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	tests := []struct {
		name   string
		try    func(context.Context) error
		cancel time.Duration // of the caller's context
		closed time.Duration
		want   error
		after  time.Duration
	}{
		{"taken", func(context.Context) error { return nil }, 0, 0, nil, 0},
		{"refused", func(context.Context) error { return refused }, 0, 0, refused, 0},
		{"timeout", waits, 0, 0, errLate, 10 * time.Second},
		{"timeout of one that is stuck", stuck, 0, 0, errLate, 10 * time.Second},
		{"cancelled", waits, time.Second, 0, context.Canceled, time.Second},
		{"cancelled when stuck", stuck, time.Second, 0, context.Canceled, time.Second},
		{"closed", waits, 0, time.Second, attempt.ErrClosed, time.Second},
		{"closed when stuck", stuck, 0, time.Second, attempt.ErrClosed, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begin, calls := time.Now(), 0
				g.Go(ctx, tt.try, func(err error) {
					if calls++; !errors.Is(err, tt.want) {
						t.Errorf("want %v, got %v", tt.want, err)
					}
					if after := time.Since(begin); after != tt.after {
						t.Errorf("want done after %v, got %v", tt.after, after)
					}
				})
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				time.Sleep(max(tt.closed, tt.after))
				if tt.closed == 0 {
					synctest.Wait()
					if calls != 1 {
						t.Errorf("want one call of done before Close, got %d", calls)
					}
				}
				g.Close()
				if calls != 1 {
					t.Errorf("want one call of done, got %d", calls)
				}
			})
		})
	}
}

// TestLateCallerBUS4: the deadline of the caller is not reported as the timeout of the delivery.
func TestLateCallerBUS4(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Go(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want a deadline, got %v", err)
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		g.Close()
	})
}

// TestSendAfterCloseBUS4: also then done is called, and not by the caller.
func TestSendAfterCloseBUS4(t *testing.T) {
	t.Parallel()
	g := newGroup()
	g.Close()
	var mu sync.Mutex
	outcome := make(chan error)
	mu.Lock()
	g.Go(t.Context(), func(context.Context) error { return nil }, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		outcome <- err
	})
	mu.Unlock()
	if err := <-outcome; !errors.Is(err, attempt.ErrClosed) {
		t.Errorf("want ErrClosed, got %v", err)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 5, ""},
		{"plain", 5, "plain"},
		{"plain text", 5, "plain…"},
		{"a\x00\r\n\x1b[31mb\xff\u202ec", 50, "a [31mb c"},
		{"ääää", 3, "ä…"},
		{"ab€", 3, "ab…"},
		{"ab€", 4, "ab…"},
		{"\x80\x80\x80\x80", 3, "…"},
		{"<html>\n\t<p>no", 50, "<html> <p>no"},
	} {
		if got := attempt.Printable(tt.text, tt.limit); got != tt.want {
			t.Errorf("%q: want %q, got %q", tt.text, tt.want, got)
		}
	}
	if got := attempt.Printable(strings.Repeat("€", 1000), 200); len(got) > 203 {
		t.Errorf("%d bytes", len(got))
	}
}
