//go:build !linux

package programtest

import "syscall"

// attributes are none: a process outlives a test that is killed.
func attributes() *syscall.SysProcAttr { return nil }
