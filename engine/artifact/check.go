package artifact

import (
	"errors"
	"fmt"
	"hash"
	"io"
)

// checkedReader compares what it has read with a reference, at the end.
type checkedReader struct {
	from   io.ReadCloser
	digest hash.Hash
	want   string // digest
	ref    Ref
	n      int64
	err    error
}

// Read returns bytes, and at the end io.EOF or ErrCorrupt.
func (c *checkedReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	c.digest.Write(p[:n])
	c.n += int64(n)
	if c.n > c.ref.Bytes {
		c.err = c.corrupt("it is longer")
		return 0, c.err
	}
	if errors.Is(err, io.EOF) {
		switch {
		case c.n < c.ref.Bytes:
			err = c.corrupt("it is shorter")
		case string(c.digest.Sum(nil)) != c.want:
			err = c.corrupt("its SHA-256 is another")
		}
	}
	c.err = err
	return n, err
}

func (c *checkedReader) corrupt(how string) error {
	return fmt.Errorf("%w: %q at %s: %s: restore it, or repeat the step", ErrCorrupt, c.ref.Name, c.ref.URI, how)
}

// Close closes the blob.
func (c *checkedReader) Close() error { return c.from.Close() }
