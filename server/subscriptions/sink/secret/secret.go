package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

const (
	// maxBytes bounds a file. NATS credentials are the largest that are expected, at about 2 KiB.
	maxBytes = 64 << 10
	maxName  = 128
)

// Scope is where the secrets of a subscription are.
type Scope struct {
	dir   string // on the node; empty: the node has none
	below string // in dir
}

// Of returns the scope of the subscriptions of a tenant, or with an empty tenantID of those of all
// tenants. The dir is the value of --sink-secrets-dir, or empty.
func Of(dir, tenantID string) Scope {
	if tenantID == "" {
		return Scope{dir, "cluster"}
	}
	return Scope{dir, path.Join("tenants", element(tenantID))}
}

// element makes one element of a path out of any name. Different names stay different.
func element(name string) string {
	dots := name == "." || name == ".." // a directory
	var out strings.Builder
	for i := range len(name) {
		if c := name[i]; isNameByte(c) && (c != '.' || !dots) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// NameFault says why a text cannot be the name of a secret; empty: it can.
func NameFault(name string) string {
	const form = "send 1 to 128 letters, digits, \".\", \"_\" and \"-\""
	switch {
	case name == "":
		return "is required: " + form
	case len(name) > maxName:
		return fmt.Sprintf("is %d bytes long: %s", len(name), form)
	case name == "." || name == "..":
		return fmt.Sprintf("is %q, which names a directory: %s", name, form)
	}
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return "has another character than those of a file's name: " + form
		}
	}
	return ""
}

// Path returns the path of a secret below the directory, for errors.
func (s Scope) Path(name string) string { return path.Join(s.below, name) }

// Read reads the secret with this name.
func (s Scope) Read(name string) ([]byte, error) {
	text, _, err := s.read(name, nil)
	return text, err
}

// read reads the secret, unless its file is the one of before. It returns no text then.
func (s Scope) read(name string, before fs.FileInfo) (text []byte, info fs.FileInfo, err error) {
	if fault := NameFault(name); fault != "" {
		return nil, nil, errors.New("secret: its name " + fault)
	}
	at := s.Path(name)
	if s.dir == "" {
		return nil, nil, fmt.Errorf("secret %s: the node has no directory of secrets: start it with --sink-secrets-dir", at)
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("secret %s: cannot open the directory of secrets: %w: check --sink-secrets-dir", at, cause(err))
	}
	defer root.Close()
	// A link in a tenant's folder may not lead out of it.
	folder, err := root.OpenRoot(s.below)
	if err == nil {
		defer folder.Close()
		info, err = folder.Stat(name)
	}
	// The check precedes the read, so a change in between shows at the next check. Only a regular
	// file is opened: another one might block.
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("secret %s: %w: put it below the directory of --sink-secrets-dir", at, fs.ErrNotExist)
	case err != nil:
		return nil, nil, fmt.Errorf("secret %s: cannot read the file: %w: check it below the directory of --sink-secrets-dir", at, cause(err))
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("secret %s: is no regular file: replace it", at)
	case before != nil && same(before, info):
		return nil, info, nil
	}
	if text, err = readAll(folder, name); err != nil {
		return nil, nil, fmt.Errorf("secret %s: cannot read the file: %w: check it below the directory of --sink-secrets-dir", at, cause(err))
	}
	if len(text) > maxBytes {
		return nil, nil, fmt.Errorf("secret %s: is longer than %d bytes: replace it", at, maxBytes)
	}
	return text, info, nil
}

func readAll(folder *os.Root, name string) ([]byte, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// cause leaves the paths of this machine out of an error.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
