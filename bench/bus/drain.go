package bus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"runlog/bench/target"
)

// drain is a consumer that acknowledges whatever it gets.
type drain struct {
	consumer target.Consumer
	got      atomic.Uint64
	ended    sync.WaitGroup
	closing  atomic.Bool
	failed   atomic.Pointer[error]
}

func newDrain(c target.Consumer) *drain {
	d := &drain{consumer: c}
	d.ended.Go(d.run)
	return d
}

func (d *drain) run() {
	for {
		n, err := d.consumer.Next(context.Background())
		d.got.Add(uint64(n))
		if err == nil {
			continue
		}
		if !d.closing.Load() {
			d.failed.Store(&err)
		}
		return
	}
}

// await waits until so many events have come in all.
func (d *drain) await(ctx context.Context, events uint64, grace time.Duration) error {
	return await(ctx, grace, func() (string, error) {
		if err := d.failed.Load(); err != nil {
			return "", *err
		}
		if n := d.got.Load(); n < events {
			return fmt.Sprintf("%d of %d events reached a consumer", n, events), nil
		}
		return "", nil
	})
}

// Close ends the consumer.
func (d *drain) Close() error {
	d.closing.Store(true)
	err := d.consumer.Close()
	d.ended.Wait()
	return err
}

// lookEvery is the interval of questions that wait for something. It is long enough that they cost
// a server of NATS or Kafka little.
const lookEvery = 5 * time.Millisecond

// await asks until there is nothing more to wait for. After grace, the last answer is the error.
func await(ctx context.Context, grace time.Duration, ask func() (missing string, err error)) error {
	for deadline := time.Now().Add(grace); ; {
		missing, err := ask()
		if err != nil || missing == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bench: %s within %v", missing, grace)
		}
		if !target.Pause(ctx, lookEvery) {
			return context.Cause(ctx)
		}
	}
}
