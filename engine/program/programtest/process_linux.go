package programtest

import "syscall"

// attributes let no process outlive its test.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
