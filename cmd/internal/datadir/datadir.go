// Package datadir tells what is wrong with the data directory of a node, for the commands that open
// one.
package datadir

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"runlog/client/command/output"
)

// Explain tells what to do about a data directory that cannot be opened.
func Explain(err error) error {
	remedy := ""
	switch {
	case strings.Contains(err.Error(), "--data-dir"): // it has its remedy
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		remedy = "; make it writable for this user, or choose another with --data-dir"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrNotExist):
		remedy = "; choose another with --data-dir"
	}
	return output.Errorf(output.ExitFailed, "%v%s", err, remedy)
}
