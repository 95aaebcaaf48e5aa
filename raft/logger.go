package raft

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// newHCLogger hands the libraries' log to ours, errors as errors and the rest for debugging:
// they warn of every election, also of the one that starts a node, and leadership is ours to tell.
func newHCLogger(log *slog.Logger) hclog.Logger {
	log = log.With("lib", "raft")
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	l.RegisterSink(sink{log})
	return l
}

type sink struct{ log *slog.Logger }

var _ hclog.SinkAdapter = sink{}

func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level == hclog.Error {
		to = slog.LevelError
	}
	s.log.Log(context.Background(), to, msg, args...)
}
