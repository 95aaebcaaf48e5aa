package command

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// TestSignalsTheListedENG3: a signal goes to the process that was listed. One that has got its id
// since is spared.
func TestSignalsTheListedENG3(t *testing.T) {
	t.Parallel()
	child := exec.Command("sleep", "3600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	all := below(os.Getpid())
	i := slices.IndexFunc(all, func(p listed) bool { return p.pid == child.Process.Pid })
	if i < 0 {
		t.Fatalf("%v lacks the child %d", all, child.Process.Pid)
	}
	earlier := all[i]
	earlier.started = "1"
	earlier.signal(syscall.SIGKILL)
	all[i].signal(syscall.SIGTERM)
	_ = child.Wait()
	if status := child.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the child ended by %s: it got the signal of another process", status.Signal())
	}
}
