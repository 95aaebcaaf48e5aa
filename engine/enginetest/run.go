package enginetest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// scenario is one test of the suite.
type scenario struct {
	name string
	play func(b *bed)
}

// scenarios returns all of them.
func scenarios() (list []scenario) {
	list = append(list, plain...)
	for _, s := range stories {
		list = append(list, scenario{s.name, s.once})
	}
	for _, s := range stories {
		list = append(list, scenario{"Killed" + s.name, s.killed})
	}
	return list
}

// Run runs the suite against an engine. open is called once for each scenario.
//
// TEST_RUNLOG_ENGINE_STRIDE is the distance between the actions at which processes are killed, 23
// by default. With 1, each action has its kills. A short test kills only if the variable is set.
func Run(t *testing.T, open func(t testing.TB, env *Env) Engine) {
	t.Helper()
	stride := 23
	text := os.Getenv("TEST_RUNLOG_ENGINE_STRIDE")
	if text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("TEST_RUNLOG_ENGINE_STRIDE is %q, want 1 or more", text)
		}
		stride = n
	}
	for i, s := range scenarios() {
		if testing.Short() && text == "" && strings.HasPrefix(s.name, "Killed") {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, open)
			b.stride, b.first = stride, 1+i%min(stride, minActions)
			s.play(b)
		})
	}
}
