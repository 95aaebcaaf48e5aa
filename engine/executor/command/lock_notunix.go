//go:build !unix

package command

import (
	"errors"
	"os"
)

// There are no locks: what a killed worker leaves stays.

func lock(*os.File) bool { return true }

func openLock(string) (*os.File, error) { return nil, errors.ErrUnsupported }
