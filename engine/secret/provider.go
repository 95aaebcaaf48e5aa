package secret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Provider resolves references. It is safe for concurrent use.
type Provider interface {
	// Resolve returns the secrets of all references, or an error that joins an *Error for each one
	// that fails. It returns when ctx ends.
	Resolve(ctx context.Context, refs []string, scope Scope) (*Set, error)
}

// Scope is what the run that secrets are resolved for belongs to. It has secrets of its own.
type Scope struct {
	TenantID      string
	EnvironmentID string
}

const maxRef = 512 // bytes

// Mux hands references to providers by their schemes, such as "env", "file" and "vault". It does
// not change while it is used.
type Mux map[string]Provider

// Resolve calls the provider of each scheme once, with all references of the scheme.
func (m Mux) Resolve(ctx context.Context, refs []string, scope Scope) (*Set, error) {
	var faults []error
	byScheme := map[string][]string{}
	for i, ref := range refs {
		scheme, _, ok := strings.Cut(ref, ":")
		if _, known := m[scheme]; !ok || !known {
			faults = append(faults, &Error{fmt.Sprintf("#%d", i+1), ErrReference,
				fmt.Sprintf("its scheme is none of %q: write one of them and a colon before the name", slices.Sorted(maps.Keys(m)))})
			continue
		}
		byScheme[scheme] = append(byScheme[scheme], ref)
	}
	var sets []*Set
	for _, scheme := range slices.Sorted(maps.Keys(byScheme)) {
		set, err := m[scheme].Resolve(ctx, byScheme[scheme], scope)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		sets = append(sets, set)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return merge(sets)
}

// each resolves references one by one. The name is what stands after the scheme.
func each(ctx context.Context, refs []string, resolve func(ref, name string) (string, error)) (*Set, error) {
	values := make(map[string]string, len(refs))
	var faults []error
	for i, ref := range refs {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("secret: cannot resolve: %w", context.Cause(ctx))
		}
		_, name, ok := strings.Cut(ref, ":")
		if !ok || len(ref) > maxRef {
			faults = append(faults, &Error{fmt.Sprintf("#%d", i+1), ErrReference,
				fmt.Sprintf("write a scheme, a colon and a name, at most %d bytes", maxRef)})
			continue
		}
		if _, done := values[ref]; done {
			continue
		}
		value, err := resolve(ref, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		values[ref] = value
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return NewSet(values)
}

// isNameByte reports whether names of files, and elements of paths, may have a byte.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// isElement reports whether a text can be one element of a path. One that begins with two dots is
// none: Kubernetes has its own files under such names.
func isElement(text string) bool {
	if text == "" || text == "." || strings.HasPrefix(text, "..") || len(text) > 253 {
		return false
	}
	for i := range len(text) {
		if !isNameByte(text[i]) {
			return false
		}
	}
	return true
}

// isPath reports whether a text is a path below a directory: elements with slashes between them.
func isPath(text string) bool {
	for element := range strings.SplitSeq(text, "/") {
		if !isElement(element) {
			return false
		}
	}
	return true
}

// element makes one element of a path out of any name: other bytes than those of names, and a dot
// at the beginning, are percent-encoded. Different names stay different.
func element(name string) string {
	var out strings.Builder
	for i := range len(name) {
		if c := name[i]; isNameByte(c) && (c != '.' || i > 0) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// below returns the directory of a scope, with a slash at its end.
func (s Scope) below(ref string) (string, error) {
	if s.TenantID == "" || s.EnvironmentID == "" {
		return "", &Error{ref, ErrDenied, "the run has no tenant or no environment, and each one has secrets of its own"}
	}
	return element(s.TenantID) + "/" + element(s.EnvironmentID) + "/", nil
}

// notFound has the detail of a secret that is not there.
func notFound(ref, remedy string) error { return &Error{ref, ErrNotFound, remedy} }
