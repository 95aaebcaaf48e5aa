package audit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestExportHandsOver: a view of the store is kept while its messages find room in time, so that a
// slow reader does not cost a new view each. It is let go of after exportHold, and when the reader
// is gone.
func TestExportHandsOver(t *testing.T) {
	for name, c := range map[string]struct {
		reads, fails, ends time.Duration // when the reader does so; 0: never
		handed             bool
		after              time.Duration
	}{
		"room in time": {reads: exportHold / 2, handed: true, after: exportHold / 2},
		"no room":      {reads: 2 * exportHold, after: exportHold},
		"not sent":     {fails: exportHold / 4, after: exportHold / 4},
		"gone":         {ends: exportHold / 4, after: exportHold / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &exporting{made: make(chan exported, 1), sent: make(chan struct{})}
				for when, does := range map[time.Duration]func(){
					c.reads: func() { <-e.made }, c.fails: func() { close(e.sent) }, c.ends: cancel,
				} {
					if when > 0 {
						time.AfterFunc(when, does)
					}
				}
				held := time.After(exportHold)
				if !e.hand(ctx, exported{}, held) {
					t.Error("an empty queue has no room")
				}
				began := time.Now()
				if got, took := e.hand(ctx, exported{}, held), time.Since(began); got != c.handed || took != c.after {
					t.Errorf("handed over: %v after %v, want %v after %v", got, took, c.handed, c.after)
				}
			})
		})
	}
}
