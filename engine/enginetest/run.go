package enginetest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// scenario is one test of the suite.
type scenario struct {
	name string
	play func(b *bed)
}

// killed begins the names of scenarios in which processes are killed at their actions.
const killed = "Killed"

// scenarios returns all of them.
func scenarios() (list []scenario) {
	list = append(list, plain...)
	for _, s := range stories {
		list = append(list, scenario{s.name, s.once})
		if len(s.signals) > 0 {
			list = append(list, scenario{"Bridged" + s.name, bridge(s.once)})
		}
	}
	for _, s := range stories {
		list = append(list, scenario{killed + s.name, s.killed})
		if s.name == "Pause" { // The one with the most signals.
			list = append(list, scenario{killed + "Bridged" + s.name, bridge(s.killed)})
		}
	}
	return list
}

// Option is an option of Run.
type Option func(*options)

type options struct{ bubble bool }

// InBubble plays each scenario in a bubble of fake time, on a network of its own, Env.Network. The
// engine and its platform use no other network.
func InBubble() Option { return func(o *options) { o.bubble = true } }

// Run runs the suite against an engine. open is called once for each scenario.
//
// TEST_RUNLOG_ENGINE_STRIDE is the distance between the actions at which processes are killed, 23
// by default. With 1, each action has its kills. A short test kills only if the variable is set.
func Run(t *testing.T, open func(t testing.TB, env *Env) Engine, opts ...Option) {
	t.Helper()
	var o options
	for _, set := range opts {
		set(&o)
	}
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
		if testing.Short() && text == "" && strings.HasPrefix(s.name, killed) {
			continue
		}
		play := func(t *testing.T, n *network.Network) {
			b := newBed(t, n, open)
			b.stride, b.first = stride, 1+i%min(stride, minActions)
			b.env.Kills = strings.HasPrefix(s.name, killed)
			s.play(b)
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if o.bubble {
				bubble.Test(t, func(t *testing.T) { play(t, network.New(uint64(i))) })
			} else {
				play(t, nil)
			}
		})
	}
}
