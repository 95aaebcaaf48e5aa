//go:build unix

package command

import "syscall"

// endingOf returns how a process has ended.
func endingOf(status syscall.WaitStatus) ending {
	if status.Signaled() {
		return ending{signal: status.Signal().String()}
	}
	return ending{code: status.ExitStatus()}
}
