//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// There are no process groups: only the process itself can be ended.

func prepare(*exec.Cmd) {}

func (t *tree) terminate() { t.kill() }
func (t *tree) kill() {
	_ = t.cmd.Process.Kill()
	<-t.exited
}

func endOf(state *os.ProcessState) ending { return ending{code: state.ExitCode()} }
