package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Opener reads the blobs of URI schemes. It is safe for concurrent use.
type Opener interface {
	// Open returns the bytes of a blob from the first one. The caller closes the body. The context
	// bounds the reading too. The error for an absent blob wraps fs.ErrNotExist.
	Open(ctx context.Context, uri string) (io.ReadCloser, error)
}

// Store reads and writes the blobs of URI schemes. It is safe for concurrent use.
type Store interface {
	Opener
	// Put stores exactly size bytes of the body on stable storage, in place of what the URI had
	// before. After an error the blob is the old one or the new one.
	Put(ctx context.Context, uri string, body io.Reader, size int64) error
}

// Entry is a blob of a folder.
type Entry struct {
	Name   string // below the folder
	Stored time.Time
}

// Lister is a Store that lists folders.
type Lister interface {
	// List yields the blobs of a folder in any order, without those of the folders in it. A folder
	// that does not exist is empty. An error is the last that it yields.
	List(ctx context.Context, uri string) iter.Seq2[Entry, error]
}

// Options are those of New.
type Options struct {
	// Allow lists what may be opened and stored: URIs whose scheme and host are equal to those of
	// an entry, and whose path is the entry's or below it. Empty: everything.
	Allow []string
	// Timeout bounds one Open with the reading of its body, and one Put. 0: five minutes.
	Timeout time.Duration
	// HTTP are the options of http and https.
	HTTP HTTPOptions
	// S3 are the options of s3.
	S3 S3Options
}

const defaultTimeout = 5 * time.Minute

// Registry is a Store that hands each URI to the store of its scheme. Register the stores first,
// then use it.
type Registry struct {
	stores  map[string]Store
	allow   []*url.URL
	timeout time.Duration
}

var (
	_ Store  = (*Registry)(nil)
	_ Lister = (*Registry)(nil)
)

// New returns a registry with the stores of this package: file, http, https and s3.
func New(o Options) (*Registry, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("blob: new: the timeout %s is below 0: use 0 or more", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	r := &Registry{stores: map[string]Store{}, timeout: o.Timeout}
	for _, entry := range o.Allow {
		u, why := parse(entry)
		if why == "" && (u.RawQuery != "" || u.ForceQuery) {
			why = "it has a query: remove ? and what follows"
		}
		if why != "" {
			return nil, invalid("allow", entry, "%s", why)
		}
		u.Path = strings.TrimSuffix(u.Path, "/")
		r.allow = append(r.allow, u)
	}
	s3, err := newS3(o.S3)
	if err != nil {
		return nil, err
	}
	web := newHTTP(o.HTTP, r.check)
	r.stores["file"], r.stores["http"], r.stores["https"], r.stores["s3"] = fileStore{r.allowed}, web, web, s3
	return r, nil
}

// Register adds a store for schemes. A scheme has one store. The store gets only URIs that pass
// CheckURI and Options.Allow.
func (r *Registry) Register(s Store, schemes ...string) error {
	for _, scheme := range schemes {
		if _, taken := r.stores[scheme]; taken {
			return fmt.Errorf("blob: register: the scheme %q has a store: register each scheme once", scheme)
		}
	}
	for _, scheme := range schemes {
		r.stores[scheme] = s
	}
	return nil
}

// Schemes returns the known schemes in alphabetical order.
func (r *Registry) Schemes() []string { return slices.Sorted(maps.Keys(r.stores)) }

// Open opens a blob in the store of its scheme.
func (r *Registry) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	s, err := r.store("open", uri)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	body, err := s.Open(ctx, uri)
	if err != nil {
		cancel()
		return nil, err
	}
	return &timedBody{body, cancel}, nil
}

// timedBody ends the context of a body when that is closed.
type timedBody struct {
	io.ReadCloser
	cancel func()
}

// Close closes the body.
func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Put stores a blob in the store of its scheme.
func (r *Registry) Put(ctx context.Context, uri string, body io.Reader, size int64) error {
	s, err := r.store("put", uri)
	if err != nil {
		return err
	}
	if size < 0 {
		return invalid("put", uri, "the size %d is below 0: give the size of the body", size)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	return s.Put(ctx, uri, body, size)
}

// List lists a folder in the store of its scheme, which must be a Lister: those of http and https
// are none. The timeout bounds the whole list.
func (r *Registry) List(ctx context.Context, uri string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s, err := r.store("list", uri)
		l, ok := s.(Lister)
		if err == nil && !ok {
			err = &Error{Op: "list", URI: Shown(uri), Kind: Unsupported, Err: errors.New("the store of this scheme lists nothing: use another one, such as file or s3")}
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
		defer cancel()
		l.List(ctx, uri)(yield)
	}
}

func (r *Registry) store(op, uri string) (Store, error) {
	u, why := parse(uri)
	if why != "" {
		return nil, invalid(op, uri, "%s", why)
	}
	s, ok := r.stores[u.Scheme]
	if !ok {
		return nil, &SchemeError{Scheme: u.Scheme, Known: r.Schemes()}
	}
	if err := r.check(u); err != nil {
		return nil, &Error{Op: op, URI: Shown(uri), Kind: Denied, Err: err}
	}
	return s, nil
}

// check refuses what Options.Allow does not list.
func (r *Registry) check(u *url.URL) error {
	if len(r.allow) > 0 && r.allowed(u) == nil {
		return errNotAllowed
	}
	return nil
}

// allowed returns the entry of Options.Allow that has a URI, or nil.
func (r *Registry) allowed(u *url.URL) *url.URL {
	for _, a := range r.allow {
		inside := u.Path == a.Path || strings.HasPrefix(u.Path, a.Path+"/")
		if a.Scheme == u.Scheme && strings.EqualFold(a.Host, u.Host) && inside {
			return a
		}
	}
	return nil
}

// ReadAll returns the bytes of a blob. A blob of more than limit bytes is a *TooLargeError. With an
// error of the body, it also returns what it has read.
func ReadAll(ctx context.Context, from Opener, uri string, limit int64) ([]byte, error) {
	if limit < 0 || limit == math.MaxInt64 {
		return nil, invalid("read", uri, "the limit is %d bytes: use one from 0 that memory has room for", limit)
	}
	body, err := from.Open(ctx, uri)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err = errors.Join(err, body.Close()); err == nil && int64(len(b)) > limit {
		err = &TooLargeError{URI: Shown(uri), Limit: limit}
	}
	return b, err
}
