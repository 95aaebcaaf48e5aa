package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// fileStore has the files of this machine: file:///folder/name. If an entry of Options.Allow has
// the file, no symbolic link leads out of the folder of the entry.
type fileStore struct{ allowed func(*url.URL) *url.URL }

// folder opens the folder from which a file is reached, and returns the path from there on. Before
// a Put, folders below it may not exist yet.
func (s fileStore) folder(op, uri string) (root *os.Root, name string, err error) {
	u, why := parse(uri)
	if why != "" {
		return nil, "", invalid(op, uri, "%s", why)
	}
	var dir string
	switch a := s.allowed(u); {
	case a == nil:
		at := u.Path
		// A link that the file itself is may lead anywhere.
		if to, err := filepath.EvalSymlinks(at); err == nil {
			at = filepath.ToSlash(to)
		}
		dir, name = path.Dir(at), path.Base(at)
	case a.Path == u.Path:
		dir, name = path.Dir(u.Path), path.Base(u.Path)
	default:
		dir, name = a.Path, u.Path[len(a.Path)+1:]
	}
	for dir != "/" && dir != "." {
		if info, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) && (err != nil || info.IsDir()) {
			break
		}
		dir, name = path.Dir(dir), path.Join(path.Base(dir), name)
	}
	if root, err = os.OpenRoot(dir); err != nil {
		return nil, "", fileError(op, uri, err)
	}
	return root, name, nil
}

// Open opens a regular file. Another one might block forever.
func (s fileStore) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	root, name, err := s.folder("open", uri)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, fileError("open", uri, err)
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("open", uri, "it is no regular file: name one")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fileError("open", uri, err)
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, fileError("open", uri, err)
	}
	return &body{f, ctx, uri, info.Size()}, nil
}

// Put writes a file beside its place, syncs it, renames it, and syncs the folder.
func (s fileStore) Put(ctx context.Context, uri string, from io.Reader, size int64) error {
	root, name, err := s.folder("put", uri)
	if err != nil {
		return err
	}
	defer root.Close()
	dir := path.Dir(name)
	beside := path.Join(dir, partPrefix+rand.Text())
	if err = makeFolder(root, dir); err == nil {
		err = writeFile(root, beside, exactly(ctx, uri, from, size))
	}
	if err == nil {
		err = root.Rename(beside, name)
	}
	if err != nil {
		if left := root.Remove(beside); left != nil && !errors.Is(left, fs.ErrNotExist) {
			err = errors.Join(err, left)
		}
		return fileError("put", uri, err)
	}
	if err := syncFolder(root, dir); err != nil {
		return fileError("put", uri, err)
	}
	return nil
}

// List lists the regular files of a folder, but not what a Put is writing.
func (s fileStore) List(ctx context.Context, uri string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		root, name, err := s.folder("list", uri)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer root.Close()
		dir, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Entry{}, fileError("list", uri, err))
			return
		}
		defer dir.Close()
		for err == nil && ctx.Err() == nil {
			var some []fs.DirEntry
			some, err = dir.ReadDir(listedAtOnce)
			for _, file := range some {
				info, gone := root.Lstat(path.Join(name, file.Name()))
				if gone != nil || !info.Mode().IsRegular() || strings.HasPrefix(file.Name(), partPrefix) {
					continue
				}
				if !yield(Entry{file.Name(), info.ModTime()}, nil) {
					return
				}
			}
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !errors.Is(err, io.EOF) {
			yield(Entry{}, fileError("list", uri, err))
		}
	}
}

const (
	// partPrefix begins the names of files that are being written.
	partPrefix = ".part-"
	// listedAtOnce bounds the entries of a folder that are in memory.
	listedAtOnce = 1000
)

// makeFolder makes a folder and its parents, and syncs the folders that have got an entry.
func makeFolder(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := makeFolder(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(root, path.Dir(dir))
}

func writeFile(root *os.Root, name string, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func syncFolder(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func fileError(op, uri string, err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own // of the body
	}
	kind := Transient
	no, system := errors.AsType[syscall.Errno](err)
	at, isPath := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = Denied
	case isPath && !system: // A link leads out of the folder.
		kind = Denied
	case slices.Contains([]syscall.Errno{syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP}, no):
		kind = Invalid
	}
	if isPath {
		err = fmt.Errorf("%s: %w", at.Op, at.Err) // The URI says where.
	}
	return &Error{Op: op, URI: Shown(uri), Kind: kind, Err: err}
}
