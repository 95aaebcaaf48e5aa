package target

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/testbed/await"
)

// forever is beyond the time of the test binary, which limits what tests wait for.
const forever = 24 * time.Hour

// start runs a script. Its input ends with the test, also if that is killed.
func start(t *testing.T, script string) *Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartProcess(filepath.Join(t.TempDir(), "log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // the process may have ended before
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestProcess(t *testing.T) {
	p := start(t, "echo up; exec cat")
	if err := p.Wait(await.Context(t), forever, func() bool { return p.lastLine() == "up" }); err != nil {
		t.Fatal(err)
	}
	if u, err := readUsage(p.ID()); err != nil || u.PeakBytes == 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "ended by itself (signal: terminated); its last line: up") {
		t.Error(err)
	}
}

func TestProcessThatIsKilled(t *testing.T) {
	p := start(t, "exec cat")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("a process that was killed on purpose: %v", err)
	}
}

func TestProcessThatDoesNotServe(t *testing.T) {
	p := start(t, "echo why; exec cat")
	await.Poll(t, "a line in the log of the process", func() bool { return p.lastLine() == "why" })
	err := p.Wait(t.Context(), time.Millisecond, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "did not serve within 1ms; its last line: why") {
		t.Error(err)
	}
	p = start(t, "exit 1")
	if err := p.Wait(await.Context(t), forever, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "did not start") {
		t.Error(err)
	}
	if _, err := StartProcess(filepath.Join(t.TempDir(), "log"), exec.Command("/no/such/program")); err == nil {
		t.Error("started")
	}
	if _, err := readUsage(os.Getpid() + 1<<22); err == nil {
		t.Error("a process that is not there has used something")
	}
}
