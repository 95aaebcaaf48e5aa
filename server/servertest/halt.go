package servertest

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// HaltingLog is a logger that blocks its caller at a message, so that a test can stop one package.
type HaltingLog struct {
	slog.Handler
	message string
	Reached chan struct{} // a caller waits
	Resume  chan struct{} // lets one caller go
}

// NewHaltingLog returns a log that blocks at each message with this text.
func NewHaltingLog(message string) *HaltingLog {
	return &HaltingLog{slog.DiscardHandler, message, make(chan struct{}, 100), make(chan struct{})}
}

// Logger returns the logger to pass on.
func (h *HaltingLog) Logger() *slog.Logger { return slog.New(h) }

// Enabled implements slog.Handler.
func (h *HaltingLog) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (h *HaltingLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h *HaltingLog) WithGroup(string) slog.Handler { return h }

// Handle blocks at the message.
func (h *HaltingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.Reached <- struct{}{}
		<-h.Resume
	}
	return nil
}

// HaltingClock is a clock that blocks its callers while it is halted.
type HaltingClock struct {
	Reached chan struct{} // someone waits
	mu      sync.Mutex
	halted  chan struct{} // nil: goes
}

// NewHaltingClock returns a clock that goes.
func NewHaltingClock() *HaltingClock { return &HaltingClock{Reached: make(chan struct{}, 1000)} }

// Halt makes the next callers of Now wait.
func (c *HaltingClock) Halt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halted = make(chan struct{})
}

// GoOn ends a halt.
func (c *HaltingClock) GoOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.halted)
	c.halted = nil
}

// Now is the clock.
func (c *HaltingClock) Now() time.Time {
	c.mu.Lock()
	halted := c.halted
	c.mu.Unlock()
	if halted != nil {
		c.Reached <- struct{}{}
		<-halted
	}
	return time.Now()
}
