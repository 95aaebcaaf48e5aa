package runlog_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestFailures shows what a failed run of go test leaves in the last lines of .ci/run: each failed
// test with its seed, the end of its log and the command that repeats it, in at most 40 lines.
func TestFailures(t *testing.T) {
	const log = `ok  	runlog/a	0.1s
--- FAIL: TestDraws (0.00s)
    x_test.go:1: one
    seed.go:30: the draws repeat with TEST_RUNLOG_SEED=77
    x_test.go:2: two
--- FAIL: TestCases (0.00s)
    --- FAIL: TestCases/a_case (0.00s)
        x_test.go:9: nine
FAIL
FAIL	runlog/server	12.1s
?   	runlog/b	[no test files]
+ TMPDIR=/dev/shm go test -race -short -vet=off runlog/server
panic: test timed out after 20m0s
	running tests:
		TestHangs (19m0s)

goroutine 1 [running]:
FAIL	runlog/engine	1200.1s
panic: boom

goroutine 7 [running]:
FAIL	runlog/c	0.1s
FAIL	runlog/d [build failed]
FAIL
`
	const want = `FAILED TestDraws in ./server
        seed.go:30: the draws repeat with TEST_RUNLOG_SEED=77
        x_test.go:1: one
        x_test.go:2: two
    repeat it: TEST_RUNLOG_SEED=77 go -C ./server test -count=1 -run '^TestDraws$'
FAILED TestCases/a_case in ./server
            x_test.go:9: nine
    repeat it: go -C ./server test -count=1 -run '^TestCases$/^a_case$'
FAILED TestHangs in ./engine
    panic: test timed out after 20m0s
    still running: TestHangs (19m0s)
    repeat it: go -C ./engine test -race -short -count=1 -run '^TestHangs$'
FAILED (panic: boom) in ./c
    goroutine 7 [running]:
    repeat it: go -C ./c test -race -short -count=1
FAILED to build ./d: go -C ./d vet
4 packages failed
`
	const panics = `panic: boom

goroutine 7 [running]:
panic({0x57a560?, 0x15b063ce2108?})
	/usr/local/go/src/runtime/panic.go:860 +0x13a
runlog/c.f(...)
	/src/c/c.go:7
runlog/c.(*T).g()
	/src/c/c.go:9 +0x1d
created by runlog/c.TestG in goroutine 6
	/src/c/c_test.go:3 +0x65
FAIL	runlog/c	0.1s
--- FAIL: TestLeaks (0.00s)
    x_test.go:1: before
panic: deadlock: main bubble goroutine has exited but blocked goroutines remain [recovered]
	panic: deadlock: main bubble goroutine has exited but blocked goroutines remain
	goroutine 10 [select (no cases) (durable), synctest bubble 1]:
	runlog/e.TestLeaks.func1.1()
		/src/e/e_test.go:3 +0xf
	created by runlog/e.TestLeaks.func1 in goroutine 9
		/src/e/e_test.go:3 +0x1a
	 [recovered, repanicked]

goroutine 7 [running]:
testing.tRunner.func1.2({0x55edc0, 0x29fb9a36e2d0})
	/usr/local/go/src/testing/testing.go:1974 +0x232
FAIL	runlog/e	0.1s
PASS
*** Test I/O incomplete 1m0s after exiting.
exec: WaitDelay expired before I/O complete
FAIL	runlog/f	60.1s
FAIL
`
	const wantOfPanics = `FAILED (panic: boom) in ./c
    goroutine 7 [running]:
    runlog/c.f(...)
    /src/c/c.go:7
    runlog/c.(*T).g()
    /src/c/c.go:9 +0x1d
    repeat it: go -C ./c test -count=1
FAILED TestLeaks in ./e
    panic: deadlock: main bubble goroutine has exited but blocked goroutines remain [recovered]
    goroutine 10 [select (no cases) (durable), synctest bubble 1]:
    runlog/e.TestLeaks.func1.1()
    /src/e/e_test.go:3 +0xf
    created by runlog/e.TestLeaks.func1 in goroutine 9
    repeat it: go -C ./e test -count=1 -run '^TestLeaks$'
FAILED (a test has left a process that holds its output) in ./f
    repeat it: go -C ./f test -count=1
3 packages failed
`
	show := func(log string) string {
		cmd := exec.Command("awk", "-f", "tools/failures.awk")
		cmd.Stdin = strings.NewReader(log)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for log, want := range map[string]string{log: want, panics: wantOfPanics} {
		if got := show(log); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	long := strings.Repeat("--- FAIL: TestLong (0.00s)\n"+strings.Repeat("    x_test.go:1: seed 1\n    x_test.go:2: a line\n", 20)+"FAIL\nFAIL\trunlog/a\t1s\n", 20)
	if lines := strings.Count(show(long), "\n"); lines > 40 {
		t.Errorf("%d lines, at most 40", lines)
	}
}
