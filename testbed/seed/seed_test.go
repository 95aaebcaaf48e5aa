package seed_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"runlog/testbed/seed"
)

// failing is a test that has failed. It keeps what it is told, and calls its cleanups itself.
type failing struct {
	testing.TB
	said     string
	cleanups []func()
}

func (f *failing) Failed() bool         { return true }
func (f *failing) Cleanup(clean func()) { f.cleanups = append(f.cleanups, clean) }

func (f *failing) Logf(format string, args ...any) { f.said += fmt.Sprintf(format, args...) }

func (f *failing) Fatalf(format string, args ...any) {
	f.Logf(format, args...)
	runtime.Goexit()
}

// TestSeed: a failed test prints its seed, and the environment repeats the draws.
func TestSeed(t *testing.T) {
	f := &failing{TB: t}
	drawn := seed.New(f)
	f.cleanups[0]()
	name, value, _ := strings.Cut(f.said[strings.LastIndexByte(f.said, ' ')+1:], "=")
	if name != seed.Variable || value != fmt.Sprint(drawn) {
		t.Errorf("said %q, drawn %d", f.said, drawn)
	}
	t.Setenv(name, value)
	if a, b := seed.Rand(t).Uint64(), seed.Rand(t).Uint64(); a != b {
		t.Errorf("one seed draws %d and %d", a, b)
	}
	if again := seed.New(t); again != drawn {
		t.Errorf("seed %d, want %d", again, drawn)
	}
	t.Setenv(name, "-1")
	f, ended := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		seed.New(f)
	}()
	<-ended
	if !strings.Contains(f.said, seed.Variable+"=-1: want a whole number") {
		t.Errorf("said %q", f.said)
	}
}
