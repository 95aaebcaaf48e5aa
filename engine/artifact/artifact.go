package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

var (
	// ErrTooLarge means that an artifact has more bytes than the store takes.
	ErrTooLarge = errors.New("artifact: it is too large")
	// ErrCorrupt means that the bytes are not those of the reference.
	ErrCorrupt = errors.New("artifact: the bytes differ from the reference")
	// ErrNotFound means that there is no artifact with this URI.
	ErrNotFound = errors.New("artifact: it does not exist")
)

// Ref names a stored artifact. It is what events have.
type Ref struct {
	// Name is what the step calls it, such as manifest.json.
	Name string `json:"name"`
	URI  string `json:"uri"`
	// SHA256 is the digest in 64 small hexadecimal digits.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Blobs stores bytes under URIs, such as a blob.Registry. It is safe for concurrent use.
type Blobs interface {
	// Put stores size bytes on stable storage. The blob is there as a whole or not at all. To put
	// the same bytes again is no error.
	Put(ctx context.Context, uri string, r io.Reader, size int64) error
	// Open returns the bytes, or an error that wraps fs.ErrNotExist.
	Open(ctx context.Context, uri string) (io.ReadCloser, error)
}

const (
	defaultMaxBytes = 1 << 30
	maxName         = 256
)

// Options of a Store.
type Options struct {
	// Blobs has the bytes.
	Blobs Blobs
	// Base is the URI below which all artifacts are, without a slash at its end.
	Base string
	// MaxBytes bounds one artifact, by default 1 GiB.
	MaxBytes int64
	// TempDir takes each artifact while its digest is computed. Empty: the one of the system.
	TempDir string
}

// Store stores artifacts. It is safe for concurrent use.
type Store struct{ o Options }

// NewStore checks the options.
func NewStore(o Options) (*Store, error) {
	if o.Blobs == nil || o.Base == "" {
		return nil, errors.New("artifact: the store has no blobs or no base: set both")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	o.Base = strings.TrimSuffix(o.Base, "/")
	return &Store{o}, nil
}

// Put stores an artifact of a step's attempt. It may be repeated.
func (s *Store) Put(ctx context.Context, run, step string, attempt uint32, name string, r io.Reader) (Ref, error) {
	if name == "" || len(name) > maxName || run == "" || step == "" {
		return Ref{}, fmt.Errorf("artifact: cannot store %.40q: send a run, a step and a name of at most %d bytes", name, maxName)
	}
	file, err := os.CreateTemp(s.o.TempDir, "artifact-*")
	if err != nil {
		return Ref{}, fmt.Errorf("artifact: cannot make a temporary file: %w: check TempDir", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	digest := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, digest), io.LimitReader(contextReader{ctx, r}, s.o.MaxBytes+1))
	switch {
	case err != nil:
		return Ref{}, fmt.Errorf("artifact: cannot read %q: %w", name, err)
	case n > s.o.MaxBytes:
		return Ref{}, fmt.Errorf("%w: %q has more than %d bytes: split it, or raise MaxBytes", ErrTooLarge, name, s.o.MaxBytes)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Ref{}, fmt.Errorf("artifact: cannot read %q again: %w", name, err)
	}
	sum := hex.EncodeToString(digest.Sum(nil))
	uri := strings.Join([]string{s.o.Base, element(run), element(step), strconv.FormatUint(uint64(attempt), 10), sum}, "/")
	if err := s.o.Blobs.Put(ctx, uri, file, n); err != nil {
		return Ref{}, fmt.Errorf("artifact: cannot store %q: %w", name, err)
	}
	return Ref{name, uri, sum, n}, nil
}

// Open returns the bytes of an artifact, which are checked while they are read.
func (s *Store) Open(ctx context.Context, ref Ref) (io.ReadCloser, error) {
	want, err := hex.DecodeString(ref.SHA256)
	if err != nil || len(want) != sha256.Size || ref.Bytes < 0 {
		return nil, fmt.Errorf("artifact: cannot open %q: the reference has no digest: it is not one of Put", ref.Name)
	}
	if !strings.HasPrefix(ref.URI, s.o.Base+"/") {
		return nil, fmt.Errorf("artifact: cannot open %q: its URI is not below %s", ref.Name, s.o.Base)
	}
	from, err := s.o.Blobs.Open(ctx, ref.URI)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %q at %s", ErrNotFound, ref.Name, ref.URI)
	case err != nil:
		return nil, fmt.Errorf("artifact: cannot open %q: %w", ref.Name, err)
	}
	return &checkedReader{from: from, digest: sha256.New(), want: string(want), ref: ref}, nil
}

// element makes one element of a URI out of any name. Different names stay different.
func element(name string) string {
	var out strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0
		if plain {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "~%02X", c)
		}
	}
	return out.String()
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
