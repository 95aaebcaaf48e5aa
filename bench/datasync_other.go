//go:build !linux

package bench

import "os"

// datasync makes a file durable: this platform has no fdatasync that is known to wait for the disk.
func datasync(f *os.File) error { return f.Sync() }
