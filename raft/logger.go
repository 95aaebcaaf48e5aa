package raft

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
	// repeatAfter is how long what the libraries say of one member is not said again: they say it
	// at every attempt.
	repeatAfter = 30 * time.Second
	// maxRepeats bounds what is remembered of it.
	maxRepeats = 256
)

// libraryLog hands the libraries' log to ours. Their errors are warnings here: most are that
// another node is gone, stands for election or leads by now; what stops this node is told through
// Options.Fail. Each is told once in a while, and none while the node closes. The rest is for
// debugging: they warn of every election, also of the one that starts a node, and leadership is
// ours to tell.
type libraryLog struct {
	log *slog.Logger

	mu     sync.Mutex
	quiet  bool
	spoken map[string]time.Time
}

var _ hclog.SinkAdapter = (*libraryLog)(nil)

// logger is what the libraries are given.
func (l *libraryLog) logger() hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	h.RegisterSink(l)
	return h
}

// hush is for a node that closes: everything fails then.
func (l *libraryLog) hush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = true
}

// Accept is hclog's.
func (l *libraryLog) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level == hclog.Error && l.news(msg, args) {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, msg, args...)
}

// news says whether something was not said lately. What it is about is the first of its values.
func (l *libraryLog) news(msg string, args []any) bool {
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
