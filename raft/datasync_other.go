//go:build !linux

package raft

import "os"

func datasync(f *os.File) error { return f.Sync() }
