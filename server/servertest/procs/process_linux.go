package procs

import "syscall"

// attributes are those of a node's process: a group of its own, and a kill when the test ends, also
// when the test is killed. The kernel ties that to the thread that started the process: no thread
// of the test may end before.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
