package queue_test

import (
	"errors"
	"testing"

	"runlog/storage/machine/queue"
)

// FuzzToken lists runs from whatever a caller may send as a page token.
func FuzzToken(f *testing.F) {
	b := open(f)
	for n := range 5 {
		b.do(0, b.enqueue(requestOf(n)))
	}
	b.do(0, b.leaseOne(10))
	for token, more := []byte(nil), true; more; more = len(token) > 0 {
		_, next, err := queue.ListRuns(b.Store, names[0], 100, nil, token, 2)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(next)
		token = next
	}
	f.Fuzz(func(t *testing.T, token []byte) {
		list, _, err := queue.ListRuns(b.Store, names[0], 100, nil, token, 3)
		if err != nil && !errors.Is(err, queue.ErrToken) {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Queue != names[0] {
				t.Fatalf("run %s is in queue %s", r.RunID, r.Queue)
			}
		}
	})
	if err := b.Close(); err != nil {
		f.Fatal(err)
	}
}
