// Package seed gives tests draws that repeat. The seed of a test is new in each run, is printed if
// the test fails, and is taken from the environment if it is there.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable names the environment variable with the seed of all tests.
const Variable = "TEST_RUNLOG_SEED"

// New returns the seed of a test.
func New(t testing.TB) uint64 {
	t.Helper()
	s := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%s: want a whole number from 0 to 2^64-1", Variable, text)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the draws repeat with %s=%d", Variable, s)
		}
	})
	return s
}

// Rand returns a source of draws of a test. It is for one goroutine.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(New(t), 0))
}
