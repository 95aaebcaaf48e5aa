package writer

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"runlog/proto/contract"
)

// TestFailOpenRace: a write that may wait is parked also if another one of its run is parked right
// after it has looked.
func TestFailOpenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		w, end := open(t, path, newLog(false), Options{})
		defer end()
		late := &racedContext{Context: t.Context(), then: func() { w.park("r", 0) }}
		res, err := w.Write(late, event("r", contract.StepStarted, "k1"))
		var over *BudgetError
		if err != nil || !res.Parked || errors.As(err, &over) {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

// racedContext does something when Write has looked for a backlog.
type racedContext struct {
	context.Context
	then func()
}

func (c *racedContext) Deadline() (time.Time, bool) {
	if c.then != nil {
		c.then()
		c.then = nil
	}
	return c.Context.Deadline()
}
