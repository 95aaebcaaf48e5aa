package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// haltingLog is a logger that blocks its caller at a message, so that a test can stop one package.
type haltingLog struct {
	slog.Handler
	message string
	reached chan struct{} // a caller waits
	resume  chan struct{} // lets one caller go
}

func newHaltingLog(message string) *haltingLog {
	return &haltingLog{slog.DiscardHandler, message, make(chan struct{}, 100), make(chan struct{})}
}

func (h *haltingLog) logger() *slog.Logger { return slog.New(h) }

func (h *haltingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h *haltingLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *haltingLog) WithGroup(string) slog.Handler { return h }

func (h *haltingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.reached <- struct{}{}
		<-h.resume
	}
	return nil
}

// haltingClock is a clock that blocks its callers while it is halted.
type haltingClock struct {
	reached chan struct{} // someone waits
	mu      sync.Mutex
	halted  chan struct{} // nil: goes
}

func newHaltingClock() *haltingClock { return &haltingClock{reached: make(chan struct{}, 1000)} }

func (c *haltingClock) halt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halted = make(chan struct{})
}

func (c *haltingClock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.halted)
	c.halted = nil
}

func (c *haltingClock) now() time.Time {
	c.mu.Lock()
	halted := c.halted
	c.mu.Unlock()
	if halted != nil {
		c.reached <- struct{}{}
		<-halted
	}
	return time.Now()
}
