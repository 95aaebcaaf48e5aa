// Package cloud adds the stores of Google Cloud Storage (gs) and Azure (azblob, azure) to a
// registry of blobs (PLAN-1). It is a module of its own, so that their large clients are only in
// programs that need them:
//
//	stores, err := blob.New(blob.Options{})
//	err = cloud.Register(stores)
//
// The credentials are those of the process: Application Default Credentials for Google, and the
// variables AZURE_STORAGE_ACCOUNT and its kin for Azure.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"

	gocloud "gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // opens azblob
	_ "gocloud.dev/blob/gcsblob"   // opens gs
	"gocloud.dev/gcerrors"

	"runlog/engine/blob"
)

// Register adds the stores for gs, azblob and azure.
func Register(r *blob.Registry) error {
	return r.Register(store{gocloud.OpenBucket}, "gs", "azblob", "azure")
}

// store has the objects of buckets: scheme://bucket/key. A bucket is open as long as its use.
type store struct {
	open func(ctx context.Context, bucket string) (*gocloud.Bucket, error)
}

var (
	_ blob.Store  = store{}
	_ blob.Lister = store{}
)

// bucket opens the bucket of a URI.
func (s store) bucket(ctx context.Context, op, uri string) (b *gocloud.Bucket, key string, err error) {
	u, err := url.Parse(uri)
	if err != nil || blob.CheckURI(uri) != "" {
		return nil, "", failed(op, uri, blob.Invalid, errors.New("it is no URI of a blob: write scheme://bucket/key"))
	}
	key = strings.TrimPrefix(u.Path, "/")
	if key == "" || strings.HasSuffix(key, "/") || u.RawQuery != "" {
		return nil, "", failed(op, uri, blob.Invalid, fmt.Errorf("an object has a bucket and a key: write %s://bucket/key", u.Scheme))
	}
	scheme := u.Scheme
	if scheme == "azure" {
		scheme = "azblob"
	}
	if b, err = s.open(ctx, scheme+"://"+u.Host); err != nil {
		return nil, "", storeError(ctx, op, uri, err)
	}
	return b, key, nil
}

// Open asks for an object.
func (s store) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	b, key, err := s.bucket(ctx, "open", uri)
	if err != nil {
		return nil, err
	}
	r, err := b.NewReader(ctx, key, nil)
	if err != nil {
		b.Close()
		return nil, storeError(ctx, "open", uri, err)
	}
	return &body{r, b, ctx, uri, r.Size()}, nil
}

// body closes its bucket too.
type body struct {
	*gocloud.Reader
	bucket *gocloud.Bucket
	ctx    context.Context
	uri    string
	left   int64
}

// Read reports io.ErrUnexpectedEOF in place of an end that comes too early.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil, errors.Is(err, io.EOF) && b.left <= 0:
		return n, err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return n, failed("read", b.uri, blob.Transient, io.ErrUnexpectedEOF)
	}
	return n, storeError(b.ctx, "read", b.uri, err)
}

// Close closes the body and its bucket.
func (b *body) Close() error { return errors.Join(b.Reader.Close(), b.bucket.Close()) }

// Put stores an object. The bucket shows it once it is whole.
func (s store) Put(ctx context.Context, uri string, from io.Reader, size int64) (err error) {
	b, key, err := s.bucket(ctx, "put", uri)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.NewWriter(ctx, key, &gocloud.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return storeError(ctx, "put", uri, err)
	}
	n, err := io.Copy(w, io.LimitReader(from, size+1))
	if err == nil && n != size {
		err = failed("put", uri, blob.Invalid, fmt.Errorf("the body has other than the %d bytes of its size: give its true size", size))
	}
	if err != nil {
		err = storeError(ctx, "put", uri, err)
		cancel() // Close stores nothing then.
		_ = w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return storeError(ctx, "put", uri, err)
	}
	return nil
}

// List lists the objects whose keys begin with the one of the folder.
func (s store) List(ctx context.Context, uri string) iter.Seq2[blob.Entry, error] {
	return func(yield func(blob.Entry, error) bool) {
		b, key, err := s.bucket(ctx, "list", uri)
		if err != nil {
			yield(blob.Entry{}, err)
			return
		}
		defer b.Close()
		list := b.List(&gocloud.ListOptions{Prefix: key + "/", Delimiter: "/"})
		for {
			o, err := list.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				err = ctx.Err() // Not every store looks at it within a page.
			}
			if err != nil {
				yield(blob.Entry{}, storeError(ctx, "list", uri, err))
				return
			}
			name := strings.TrimPrefix(o.Key, key+"/")
			if o.IsDir || name == "" { // consoles make an empty object of a folder
				continue
			}
			if !yield(blob.Entry{Name: name, Stored: o.ModTime}, nil) {
				return
			}
		}
	}
}

func failed(op, uri string, kind blob.Kind, err error) error {
	return &blob.Error{Op: op, URI: blob.Shown(uri), Kind: kind, Err: err}
}

// storeError leaves the texts of the clients out, which may have whole addresses.
func storeError(ctx context.Context, op, uri string, err error) error {
	if own, ok := errors.AsType[*blob.Error](err); ok {
		return own // of the body
	}
	if ctx.Err() != nil {
		return failed(op, uri, blob.Transient, context.Cause(ctx))
	}
	code := gcerrors.Code(err)
	kind := blob.Transient
	switch code {
	case gcerrors.NotFound:
		kind = blob.NotFound
	case gcerrors.PermissionDenied:
		kind = blob.Denied
	case gcerrors.InvalidArgument, gcerrors.FailedPrecondition:
		kind = blob.Invalid
	case gcerrors.Unimplemented:
		kind = blob.Unsupported
	}
	return failed(op, uri, kind, errors.New("the service says "+code.String()+": check the name, and the credentials of the process"))
}
