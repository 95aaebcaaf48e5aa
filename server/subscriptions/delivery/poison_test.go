package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// TestPoisonRunsBUS9: an endpoint answers 500 for more runs than may be in flight, and takes the
// events of all others. These do not wait until the first are dead letters.
func TestPoisonRunsBUS9(t *testing.T) {
	t.Parallel()
	run(t, 1, func(b *bed) {
		const poison, well = 71, 20
		s := b.make("t1", "s", "sink:s", func(c *subscription.Settings) {
			c.MaxInFlight, c.MaxAttempts, c.RetryInitial, c.RetryMax = 64, 1000, 200*time.Millisecond, 5*time.Minute
		})
		var mu sync.Mutex
		taken := map[string]int{}
		s.answer = func(r storage.Record) error {
			if strings.HasPrefix(r.RunID, "t1_poison") {
				return errors.New("500")
			}
			mu.Lock()
			defer mu.Unlock()
			taken[r.RunID]++
			return nil
		}
		for i := range poison {
			b.append(fmt.Sprint("t1_poison", i), types[0], 2)
		}
		for i := range well {
			b.append(fmt.Sprint("t1_well", i), types[0], 3)
		}
		time.Sleep(12 * time.Second)
		synctest.Wait()
		for i := range well {
			if n := taken[fmt.Sprint("t1_well", i)]; n != 3 {
				t.Errorf("run %d: %d of 3 events are delivered", i, n)
			}
		}
		if n := b.row(s).DeadLetters; n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}
