//go:build unix && !linux

package procs

import "syscall"

// attributes are those of a node's process: a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
