package target

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := StartProcess(filepath.Join(t.TempDir(), "log"), exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestProcess(t *testing.T) {
	p := start(t, "echo up; exec sleep 60")
	if err := p.Wait(t.Context(), time.Minute, func() bool { return p.lastLine() == "up" }); err != nil {
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
	p := start(t, "exec sleep 60")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("a process that was killed on purpose: %v", err)
	}
}

func TestProcessThatDoesNotServe(t *testing.T) {
	p := start(t, "echo why; exec sleep 60")
	err := p.Wait(t.Context(), 300*time.Millisecond, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "did not serve within 300ms; its last line: why") {
		t.Error(err)
	}
	p = start(t, "exit 1")
	if err := p.Wait(t.Context(), time.Minute, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "did not start") {
		t.Error(err)
	}
	if _, err := StartProcess(filepath.Join(t.TempDir(), "log"), exec.Command("/no/such/program")); err == nil {
		t.Error("started")
	}
	if _, err := readUsage(os.Getpid() + 1<<22); err == nil {
		t.Error("a process that is not there has used something")
	}
}
