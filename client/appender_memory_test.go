package client

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestAppenderMemory: calls that wait for room hold no encoded events.
func TestAppenderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{held: true}
		a, err := dialFake(t, &fakeServer{appendStream: r.serve}, Options{}).NewAppender(AppenderOptions{MaxBytes: 2 << 20})
		if err != nil {
			t.Fatal(err)
		}
		big := event("r")
		big.EventId = "e" // The calls share it.
		big.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 1<<20-1000)}
		ctx, cancel := context.WithCancel(t.Context())
		before := heap()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if _, err := a.Append(ctx, big); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		if grown := heap() - before; grown > 24<<20 {
			t.Errorf("64 calls of 1 MiB hold %d MiB, with a bound of 2 MiB", grown>>20)
		}
		cancel()
		all.Wait()
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
