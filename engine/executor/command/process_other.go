//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// There are no process groups: only the process itself can be ended.

func prepare(*exec.Cmd) {}

func awaitExit(cmd *exec.Cmd) (reaped bool, _ error) { return true, cmd.Wait() }

func terminate(pid int) { kill(pid) }

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

func killMarked(string) {}

func signalOf(*os.ProcessState) string { return "" }
