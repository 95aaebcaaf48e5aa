package output

import (
	"errors"
	"iter"
	"testing"
)

// TestFirst: a list that is cut says so, one that ends there does not, and an error is no further
// thing.
func TestFirst(t *testing.T) {
	things := func(n int, end error) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
			if end != nil {
				yield(0, end)
			}
		}
	}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		seq    iter.Seq2[int, error]
		limit  uint64
		want   int
		more   bool
		failed error
	}{
		"more":             {things(5, nil), 3, 3, true, nil},
		"just so many":     {things(3, nil), 3, 3, false, nil},
		"fewer":            {things(2, nil), 3, 2, false, nil},
		"all":              {things(5, nil), 0, 5, false, nil},
		"an error behind":  {things(3, broken), 3, 3, false, broken},
		"an error instead": {things(0, broken), 3, 0, false, broken},
	} {
		more, got := false, 0
		var failed error
		for _, err := range First(test.seq, test.limit, &more) {
			if failed = err; err == nil {
				got++
			}
		}
		if got != test.want || more != test.more || !errors.Is(failed, test.failed) {
			t.Errorf("%s: %d things, more %v, error %v", name, got, more, failed)
		}
	}
}
