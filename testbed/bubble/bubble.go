// Package bubble runs tests in fake time (testing/synctest), and waits there.
//
// A goroutine of a bubble that waits for a mutex, a system call or the network of the system holds
// fake time up. A test gives what it starts the network of package testbed/network, and never
// sleeps while it holds a mutex that another goroutine needs.
package bubble

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Limit is how long Until waits, in fake time.
const Limit = 10 * time.Minute

// longestPause is the longest time between two questions of Until.
const longestPause = 50 * time.Millisecond

// epoch is when a test begins, in fake time: after all dates in the data of tests.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// grace is how long a goroutine may go on when a test has ended. Some of net/http sleep for half a
// second when their connection ends, and their server does not wait for them.
const grace = time.Second

// The heaps of tests are small: Go would collect garbage at each 4 MiB, which takes a fifth of the
// processor time of nodes in fake time. GOGC has the last word, as always.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Test runs f in a bubble of its own, as synctest.Test does: all goroutines that f starts must end
// with it. Those are forgiven that libraries leave behind. The time is 2030-01-01.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	var mark string
	defer func() { forgiveLibraries(recover(), mark) }()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		mark = markOfThis()
		time.Sleep(time.Until(epoch))
		t.Cleanup(func() { time.Sleep(grace) })
		f(t)
	})
}

// markOfThis returns what the stacks of the calling goroutine's bubble have in their first line:
// tests in parallel have bubbles at the same time.
func markOfThis() string {
	head := make([]byte, 200)
	first, _, _ := strings.Cut(string(head[:runtime.Stack(head, false)]), "]")
	return first[strings.LastIndex(first, "synctest bubble"):] + "]"
}

// forgiven are parts of the stacks of goroutines that libraries leave behind: hashicorp/raft leaves
// barriers that it had not read at shutdown, and Pebble a timer if it cannot be opened.
var forgiven = []string{"raft.(*deferError).Error", "periodicGranter"}

// forgiveLibraries panics again with the panic of a bubble, unless that has only goroutines of
// libraries left.
func forgiveLibraries(p any, mark string) {
	if p == nil {
		return
	}
	if !strings.HasPrefix(fmt.Sprint(p), "deadlock: main bubble goroutine has exited") {
		panic(p)
	}
	var left []string
	stacks := make([]byte, 1<<24)
	for part := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		first, _, _ := strings.Cut(part, "\n")
		if strings.Contains(first, mark) && !strings.Contains(part, "internal/synctest.Run(") && !forgive(part) {
			left = append(left, part)
		}
	}
	if len(left) > 0 {
		panic(fmt.Sprintf("%v: end each, and wait for it, before the test returns: %d left, the first of them started at %s\n%s",
			p, len(left), startOf(left[0]), strings.Join(left, "\n\n")))
	}
}

// startOf returns the file and the line where the goroutine of a stack was started.
func startOf(stack string) string {
	_, created, _ := strings.Cut(stack, "\ncreated by ")
	_, at, _ := strings.Cut(created, "\n\t")
	at, _, _ = strings.Cut(at, " ")
	return at
}

func forgive(stack string) bool {
	for _, f := range forgiven {
		if strings.Contains(stack, f) {
			return true
		}
	}
	return false
}

// Until waits in a bubble until a condition holds. It asks whenever no other goroutine can go on,
// and lets fake time pass in between. What others did before happened before the question
// (synctest.Wait), but the question did not happen before what they do next: what the condition
// reads is atomic or under a lock. The longer it waits, the less often it asks: a question may cost
// as much as a second of fake time.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); ; {
		synctest.Wait()
		if condition() {
			return
		}
		waited := time.Since(began)
		if waited > Limit {
			t.Fatalf("still not so after %v of fake time: %s", Limit, what)
		}
		time.Sleep(min(max(waited/8, time.Millisecond), longestPause))
	}
}

// Run runs one case of a table in the bubble of its test, where t.Run is not allowed. A failure
// names the case. A case that ends itself (FailNow) does not end the others.
func Run(t testing.TB, name string, f func(t testing.TB)) {
	t.Helper()
	c := &oneCase{TB: t, name: name}
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer c.cleanUp()
		defer func() { panicked = recover() }()
		f(c)
	}()
	<-done
	if panicked != nil {
		panic(fmt.Sprintf("%s: %v", name, panicked))
	}
}

// oneCase is the testing.TB of a case.
type oneCase struct {
	testing.TB
	name     string
	failed   atomic.Bool
	mu       sync.Mutex
	cleanups []func() // Under mu; the last one runs first.
}

func (c *oneCase) cleanUp() {
	for {
		c.mu.Lock()
		n := len(c.cleanups)
		if n == 0 {
			c.mu.Unlock()
			return
		}
		last := c.cleanups[n-1]
		c.cleanups = c.cleanups[:n-1]
		c.mu.Unlock()
		last()
	}
}

func (c *oneCase) Name() string { return c.TB.Name() + "/" + c.name }
func (c *oneCase) Failed() bool { return c.failed.Load() }

func (c *oneCase) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

func (c *oneCase) Error(args ...any) {
	c.Helper()
	c.failed.Store(true)
	c.TB.Errorf("%s: %s", c.name, fmt.Sprint(args...))
}

func (c *oneCase) Errorf(format string, args ...any) {
	c.Helper()
	c.failed.Store(true)
	c.TB.Errorf("%s: %s", c.name, fmt.Sprintf(format, args...))
}

func (c *oneCase) Fatal(args ...any) {
	c.Helper()
	c.Error(args...)
	runtime.Goexit()
}

func (c *oneCase) Fatalf(format string, args ...any) {
	c.Helper()
	c.Errorf(format, args...)
	runtime.Goexit()
}

func (c *oneCase) Fail() {
	c.failed.Store(true)
	c.TB.Fail()
}

func (c *oneCase) FailNow() {
	c.Fail()
	runtime.Goexit()
}
