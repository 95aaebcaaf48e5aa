package program

import (
	"context"
	"log/slog"
	"time"

	"runlog/client"
	"runlog/client/transport/outage"
)

// Servers are those that a worker needs before it takes runs: runlog, and the server of its engine.
type Servers struct {
	Node *Node
	Log  *client.Client
	// Engine is the name of the engine, such as Conductor, and Address where its server is.
	Engine, Address string
	// Ask asks the server of the engine whether a worker could work with it. Away reports whether
	// an error of Ask says that the server may answer later.
	Ask  func(ctx context.Context) error
	Away func(err error) bool
	// Patience is how long a worker waits for them.
	Patience time.Duration
	Logger   *slog.Logger
}

// The wait after a question to which no server has answered.
const minBackoff, maxBackoff = 200 * time.Millisecond, 2 * time.Second

// Wait waits until both servers answer. It returns an error if a worker could do nothing with them,
// such as one whose credentials are refused. If ctx has ended the worker is to end, and the error
// says nothing.
func (s *Servers) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	if err := s.Node.Ready(ctx, s.Log); err != nil {
		return err
	}
	awayLog := outage.Log{Logger: s.Logger}
	last := error(nil)
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := s.Ask(ctx)
		switch {
		case err == nil:
			awayLog.Succeeded(ctx, "the server of the engine answers", "engine", s.Engine, "address", s.Address)
			return nil
		case ctx.Err() != nil && last != nil:
			return last // The end of the wait says nothing about the cause.
		case ctx.Err() != nil || !s.Away(err):
			return err
		}
		last = err
		awayLog.Failed(ctx, "cannot reach the server of the engine; retrying", "engine", s.Engine, "address", s.Address, "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff):
		}
	}
}
