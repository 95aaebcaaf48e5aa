package blob

import (
	"context"
	"errors"
	"io"
)

// body turns the errors of what a store reads into those of this package.
type body struct {
	io.ReadCloser
	ctx  context.Context // of Open
	uri  string
	left int64 // the bytes that must follow; below 0: unknown
}

// Read reports io.ErrUnexpectedEOF in place of an end that comes too early.
func (b *body) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, b.failed(context.Cause(b.ctx))
	}
	n, err := b.ReadCloser.Read(p)
	if b.left >= 0 {
		b.left = max(b.left-int64(n), 0)
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && b.left <= 0:
		return n, io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return n, b.failed(io.ErrUnexpectedEOF)
	case b.ctx.Err() != nil:
		return n, b.failed(context.Cause(b.ctx))
	}
	return n, b.failed(err)
}

func (b *body) failed(err error) error {
	return &Error{Op: "read", URI: Shown(b.uri), Kind: Transient, Err: err}
}

// exactBody reads the size bytes of a Put. It fails if the body has fewer or more, and when the
// context ends.
type exactBody struct {
	ctx        context.Context
	uri        string
	from       io.Reader
	size, left int64
	ended      bool
}

func exactly(ctx context.Context, uri string, from io.Reader, size int64) *exactBody {
	return &exactBody{ctx: ctx, uri: uri, from: from, size: size, left: size}
}

// Read looks for a byte behind the last one before it returns that one: a client that stops at the
// size must not have sent the whole size of a body that is longer.
func (b *exactBody) Read(p []byte) (int, error) {
	switch {
	case b.ctx.Err() != nil:
		return 0, context.Cause(b.ctx)
	case b.ended:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case b.left > 0 && err != nil:
		return n, b.wrong("fewer")
	case b.left > 0:
		return n, nil
	}
	if err == nil {
		if more, err := io.ReadFull(b.from, make([]byte, 1)); more > 0 {
			return 0, b.wrong("more")
		} else if !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	b.ended = true
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (b *exactBody) wrong(text string) error {
	return invalid("put", b.uri, "the body has %s bytes than its size of %d: give its true size", text, b.size)
}
