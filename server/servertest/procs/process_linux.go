package procs

import "syscall"

// attributes are those of a node's process: a group of its own, and it ends with the test, also
// where that is killed. No thread of the test may end before: the kernel looks at the one that has
// started the process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
