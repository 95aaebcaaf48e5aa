package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// File resolves file:NAME and file:FOLDER/NAME to files below the directory of a tenant and an
// environment, as Kubernetes mounts them: TENANT/ENVIRONMENT/NAME. In the names of both, bytes
// other than letters, digits, "_", "-" and "." are percent-encoded, and so is a "." at the
// beginning. One line break at the end of a file is no part of the secret. Files are read at each
// call, so a rotation needs no restart.
//
// A symbolic link in the folder of a tenant, or of its environment, may not lead out of that
// folder: the link may be the tenant's (ENG-7).
type File struct {
	// Dir is the directory.
	Dir string
	// Own: the secrets are those of the worker itself, NAME below Dir. No plan must reach them.
	Own bool
}

// Resolve reads the files.
func (f File) Resolve(ctx context.Context, refs []string, scope Scope) (*Set, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, &Error{"file:*", ErrUnavailable, fmt.Sprintf("cannot open the directory of secrets: %v: check that it is mounted", cause(err))}
	}
	defer root.Close()
	return each(ctx, refs, func(ref, name string) (string, error) {
		if !isPath(name) {
			return "", &Error{ref, ErrReference, "a name has letters, digits, \".\", \"_\" and \"-\", folders have slashes between them"}
		}
		if f.Own {
			return readFile(root, ref, "", name)
		}
		dir, err := scope.below(ref)
		if err != nil {
			return "", err
		}
		folder, err := openFolders(root, dir)
		if err != nil {
			return "", unread(ref, dir+name, err)
		}
		defer folder.Close()
		return readFile(folder, ref, dir, name)
	})
}

// openFolders opens the last of some folders, each of which is below the one before it. Only the
// first may be a link to elsewhere in root, as Kubernetes makes them.
func openFolders(root *os.Root, dir string) (folder *os.Root, err error) {
	for name := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		above := folder
		if above == nil {
			folder, err = root.OpenRoot(name)
		} else {
			folder, err = above.OpenRoot(name)
			_ = above.Close() // It was read.
		}
		if err != nil {
			return nil, err
		}
	}
	return folder, nil
}

// readFile reads a file of a folder. dir is the path of the folder.
func readFile(folder *os.Root, ref, dir, name string) (string, error) {
	// Only a regular file is opened: another one might block.
	info, err := folder.Stat(name)
	if err != nil {
		return "", unread(ref, dir+name, err)
	}
	if !info.Mode().IsRegular() {
		return "", &Error{ref, ErrValue, dir + name + " is no regular file: replace it"}
	}
	text, err := readAtMost(folder, name)
	if err != nil {
		reason := ErrUnavailable
		if errors.Is(err, fs.ErrPermission) {
			reason = ErrDenied
		}
		return "", &Error{ref, reason, fmt.Sprintf("cannot read the file %s: %v", dir+name, cause(err))}
	}
	return withoutBreak(string(text)), nil
}

// unread is the error of a secret whose file cannot be opened.
func unread(ref, path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFound(ref, "put the file "+path+" below the directory of secrets")
	case errors.Is(err, fs.ErrPermission):
		return &Error{ref, ErrDenied, "let the worker read the file " + path}
	default:
		return &Error{ref, ErrDenied, fmt.Sprintf("cannot read the file %s: %v", path, cause(err))}
	}
}

// readAtMost reads enough of a file to see that it is too long.
func readAtMost(root *os.Root, name string) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxBytes+3))
}

// withoutBreak cuts one line break off the end of a text.
func withoutBreak(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return strings.TrimSuffix(text, "\r")
}

// cause leaves the paths of this machine out of an error.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
