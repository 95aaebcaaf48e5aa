package client

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// Observer sees what a Client does, for metrics and traces. The module runlog/client/observe makes
// one of Prometheus and OpenTelemetry: a program without them does not depend on them.
//
// An outcome is "ok", or the Name of an Error. The methods are called from many goroutines, on the
// way of each call, and must not block.
type Observer interface {
	// Called sees that a try of a unary call has ended.
	Called(method, outcome string, took time.Duration)
	// Retried sees that a try has failed, and is repeated. name is that of its Error.
	Retried(name string)
	// Append sees that an Appender was given events of a run. It returns the context of the append,
	// and a function that is called once, with its outcome.
	Append(ctx context.Context, runID string, events int) (context.Context, func(outcome string))
	// Sent sees that an Appender has sent a message with events.
	Sent(events int)
	// DialOptions returns options of all connections of the Client.
	DialOptions() []grpc.DialOption
}

// unobserved sees nothing.
type unobserved struct{}

func (unobserved) Called(string, string, time.Duration) {}
func (unobserved) Retried(string)                       {}
func (unobserved) Sent(int)                             {}
func (unobserved) DialOptions() []grpc.DialOption       { return nil }

func (unobserved) Append(ctx context.Context, _ string, _ int) (context.Context, func(string)) {
	return ctx, ignored
}

func ignored(string) {}
