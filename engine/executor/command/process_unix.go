//go:build unix

package command

import (
	"os"
	"syscall"
)

// terminate and kill end a process group. It may be empty.
func terminate(group int) { _ = syscall.Kill(-group, syscall.SIGTERM) }
func kill(group int)      { _ = syscall.Kill(-group, syscall.SIGKILL) }

// signalOf returns the name of the signal that has ended a process; empty: none has.
func signalOf(state *os.ProcessState) string {
	if state == nil {
		return ""
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}
