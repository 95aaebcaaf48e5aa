package audit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"runlog/server/checkpoint"
)

// TestAwaitKey retries a call that needs the key while the key may still arrive, at most for
// keyPatience.
func TestAwaitKey(t *testing.T) {
	other := errors.New("another error")
	for name, c := range map[string]struct {
		takes time.Duration // each try
		err   error         // of all tries but the tenth
		gone  bool
		ends  time.Duration // when the caller cancels
		want  time.Duration
		fails bool
	}{
		"comes":          {err: checkpoint.ErrKeyMissing, want: 9 * keyRetry},
		"is there":       {err: nil},
		"cannot":         {err: other, fails: true},
		"gone":           {err: checkpoint.ErrKeyMissing, gone: true, fails: true},
		"slow":           {err: checkpoint.ErrKeyMissing, takes: time.Second, want: keyPatience + time.Second, fails: true},
		"caller gone":    {err: checkpoint.ErrKeyMissing, takes: 10 * keyRetry, ends: time.Second + keyRetry/2, want: 2 * time.Second, fails: true},
		"caller waiting": {err: checkpoint.ErrKeyMissing, ends: keyRetry / 2, want: keyRetry / 2, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Signer{opts: SignerOptions{Stopping: t.Context()}}
				s.gone.Store(c.gone)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ends > 0 {
					time.AfterFunc(c.ends, cancel)
				}
				began, tries := time.Now(), 0
				err := s.awaitKey(ctx, func() error {
					time.Sleep(c.takes)
					if tries++; tries == 10 {
						return nil
					}
					return c.err
				})
				if took := time.Since(began); took != c.want || (err != nil) != c.fails || err != nil && !errors.Is(err, c.err) {
					t.Errorf("%v after %s and %d tries", err, took, tries)
				}
			})
		})
	}
}
