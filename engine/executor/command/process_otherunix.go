//go:build unix && !linux

package command

import (
	"os/exec"
	"syscall"
)

// prepare gives the process a group of its own.
func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// awaitExit returns when the process has exited and is reaped.
func awaitExit(cmd *exec.Cmd) (reaped bool, _ error) { return true, cmd.Wait() }

// killMarked does nothing: only Linux lists the environments of processes.
func killMarked(string) {}
