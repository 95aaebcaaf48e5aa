//go:build unix && !linux

package command

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare gives the process a group of its own.
func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate and kill end the process group. It may be empty.
func (t *tree) terminate() { _ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGTERM) }
func (t *tree) kill() {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	<-t.exited
}

func endOf(state *os.ProcessState) ending { return endingOf(state.Sys().(syscall.WaitStatus)) }
