package programtest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"runlog/testbed/await"
)

// asProgram makes the binary of a test the program itself.
const asProgram = "TEST_RUNLOG_AS_PROGRAM"

// Main runs the tests of a program and then what is to be done after them. In a process of Command,
// it runs the program.
func Main(m *testing.M, main func(), after ...func()) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	code := m.Run()
	for _, do := range after {
		do()
	}
	os.Exit(code)
}

// Command returns a command line of the program under test: a real process without another build.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// Process is a program in a process of its own.
type Process struct {
	// Said is what it has written.
	Said *await.Words

	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a process with further variables. It is killed at the end of the test, unless it has
// ended.
func Start(t testing.TB, cmd *exec.Cmd, env ...string) *Process {
	t.Helper()
	p := &Process{Said: &await.Words{}, cmd: cmd, exited: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = append(cmd.Env, env...), p.Said, p.Said, attributes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Has returns the condition that a text is there.
func Has(text string) func(said string) bool {
	return func(said string) bool { return strings.Contains(said, text) }
}

// Says waits until a condition holds of what the process has written.
func (p *Process) Says(t testing.TB, condition func(said string) bool) {
	t.Helper()
	if !p.Said.Await(p.exited, await.Context(t).Done(), condition) {
		t.Fatalf("the process does not say what is awaited; it said:\n%s", p.Said)
	}
}

// Terminate asks the process to end.
func (p *Process) Terminate(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Wait waits for the end of the process, and returns its exit code.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	await.Receive(t, "the end of the process", p.exited)
	return p.cmd.ProcessState.ExitCode()
}

// Stop asks the process to end, and returns its exit code.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	p.Terminate(t)
	return p.Wait(t)
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // It may have ended.
	<-p.exited
}
