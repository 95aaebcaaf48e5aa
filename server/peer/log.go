package peer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxRemembered bounds the log lines with a limit of their own; all further ones share one limit.
// The other end chooses the keys.
const maxRemembered = 1024

// limitedLog writes a line no more than once in a while for each key.
type limitedLog struct {
	log   *slog.Logger
	clock func() time.Time

	mu struct {
		sync.Mutex
		lines map[string]*lineState
	}
}

type lineState struct {
	next    time.Time // when the line may be written again
	skipped int       // since it was written
}

func newLimitedLog(log *slog.Logger, clock func() time.Time) *limitedLog {
	l := &limitedLog{log: log, clock: clock}
	l.mu.lines = make(map[string]*lineState)
	return l
}

// every writes the line unless one with the key was written within the period.
func (l *limitedLog) every(period time.Duration, key string, level slog.Level, text string, args ...any) {
	now := l.clock()
	l.mu.Lock()
	s := l.lineLocked(key, now)
	if now.Before(s.next) {
		s.skipped++
		l.mu.Unlock()
		return
	}
	skipped := s.skipped
	*s = lineState{next: now.Add(period)}
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args, "alsoSince", skipped)
	}
	l.log.Log(context.Background(), level, text, args...)
}

func (l *limitedLog) lineLocked(key string, now time.Time) *lineState {
	s := l.mu.lines[key]
	if s == nil && len(l.mu.lines) >= maxRemembered {
		for k, old := range l.mu.lines {
			if !now.Before(old.next) {
				delete(l.mu.lines, k)
			}
		}
		if len(l.mu.lines) >= maxRemembered {
			key = "" // the shared key of all lines beyond the limit
			s = l.mu.lines[key]
		}
	}
	if s == nil {
		s = &lineState{}
		l.mu.lines[key] = s
	}
	return s
}
