// Package outage logs a failure that lasts, such as that of a server which is away: once when it
// begins, seldom while it lasts, and once when it is over.
//
//	log := outage.Log{Logger: logger}
//	log.Failed(ctx, "cannot poll tasks; retrying", "err", err) // each time
//	log.Succeeded(ctx, "tasks are polled again")               // each time too
package outage

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// minPause and maxPause are the times between the lines of an outage. The first one is doubled
	// after each line.
	minPause, maxPause = 30 * time.Second, 15 * time.Minute
	// quiet is how long no failure comes until the next one is that of another outage.
	quiet = time.Minute
)

// Log logs the failures of one kind. It is safe for concurrent use. Logger is required.
type Log struct {
	Logger *slog.Logger

	mu sync.Mutex
	// began is when the outage has begun; zero: there is none. last is when it has failed last.
	began, last time.Time
	failures    int
	// logged: the outage has a line.
	logged bool
	// next is when a line may be logged, and pause the time from there to the one after it.
	next  time.Time
	pause time.Duration
}

// Failed logs a failure at level warn if it begins an outage, or if the last line is long ago.
// Others are logged at level debug. The caller waits for some time after each failure.
func (l *Log) Failed(ctx context.Context, text string, args ...any) {
	lasts, failures, due := l.fail(time.Now())
	if failures > 1 {
		args = append(slices.Clip(args), "failures", failures, "lasts", lasts)
	}
	level := slog.LevelDebug
	if due {
		level = slog.LevelWarn
	}
	l.Logger.Log(ctx, level, text, args...) // Not under the mutex: a logger may be slow.
}

// Succeeded logs the end of an outage that was logged, at level info. Otherwise it does nothing.
// Without this call, an outage ends a minute after its last failure, and has no line then.
func (l *Log) Succeeded(ctx context.Context, text string, args ...any) {
	if lasted, logged := l.succeed(time.Now()); logged {
		l.Logger.InfoContext(ctx, text, append(slices.Clip(args), "lasted", lasted)...)
	}
}

func (l *Log) fail(now time.Time) (lasts time.Duration, failures int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() && now.Sub(l.last) > quiet {
		l.endLocked(l.last)
	}
	if l.began.IsZero() {
		l.began, l.failures, l.logged, l.pause = now, 0, false, minPause
	}
	l.failures, l.last = l.failures+1, now
	if due = !now.Before(l.next); due {
		l.next, l.pause, l.logged = now.Add(l.pause), min(2*l.pause, maxPause), true
	}
	return now.Sub(l.began).Round(time.Second), l.failures, due
}

func (l *Log) succeed(now time.Time) (lasted time.Duration, logged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		return 0, false
	}
	lasted, logged = now.Sub(l.began).Round(time.Second), l.logged
	l.endLocked(now)
	return lasted, logged
}

// endLocked ends the outage. What comes and goes is not logged each time, and another outage is
// logged soon.
func (l *Log) endLocked(at time.Time) {
	l.began = time.Time{}
	if soon := at.Add(minPause); l.next.After(soon) {
		l.next = soon
	}
}
