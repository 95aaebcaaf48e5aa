//go:build !unix || solaris || aix

package outbox

import (
	"errors"
	"fmt"
	"io"
)

// lockFile fails: without a lock, two processes would damage the file.
func lockFile(path string) (io.Closer, error) {
	return nil, fmt.Errorf("outbox: lock %s: %w: this system has no flock", path, errors.ErrUnsupported)
}
