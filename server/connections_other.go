//go:build !linux

package server

import (
	"errors"
	"time"
)

// setUserTimeout is for Linux only.
func setUserTimeout(int, time.Duration) error { return errors.ErrUnsupported }
