// Package liblog forwards the logs of hashicorp's libraries to slog.
package liblog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatAfter is how long a repeated library error about one member is not logged again: the
	// libraries log it at every attempt.
	repeatAfter = 30 * time.Second
	// maxRepeats bounds the number of remembered errors.
	maxRepeats = 256
)

// Log forwards the libraries' logs to slog. A library error becomes a warning: most say that
// another node is down, is a candidate or leads by now. Errors that stop this node go through
// Options.Fail. The same error is logged once in repeatAfter, and not while the node closes.
// Everything else is debug output: the libraries warn of every election, also of the one that
// starts a node.
type Log struct {
	log *slog.Logger

	mu     sync.Mutex
	quiet  bool
	spoken map[string]time.Time
}

var _ hclog.SinkAdapter = (*Log)(nil)

// New returns a log that writes to another one.
func New(to *slog.Logger) *Log { return &Log{log: to} }

// Logger returns the logger for the libraries.
func (l *Log) Logger() hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	h.RegisterSink(l)
	return h
}

// Hush is for a node that closes: everything fails then.
func (l *Log) Hush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = true
}

// Accept implements hclog.SinkAdapter.
func (l *Log) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level == hclog.Error && l.news(msg, args) {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, msg, args...)
}

// news reports whether an error was not logged lately. The first value of args names its subject.
func (l *Log) news(msg string, args []any) bool {
	key := msg
	if len(args) > 1 {
		key = fmt.Sprint(msg, args[1])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.quiet || now.Sub(l.spoken[key]) < repeatAfter {
		return false
	}
	if l.spoken == nil || len(l.spoken) >= maxRepeats {
		l.spoken = make(map[string]time.Time)
	}
	l.spoken[key] = now
	return true
}
