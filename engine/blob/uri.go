package blob

import (
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxURIBytes is the longest URI, as in the fields of the log.
const maxURIBytes = 2 << 10

// CheckURI returns why a text cannot be the URI of a blob, with the remedy, or "". It does not know
// which schemes have a store. What it returns never repeats the URI.
func CheckURI(uri string) string {
	_, why := parse(uri)
	return why
}

// parse splits a URI, and refuses one that could mean different things to different readers.
func parse(uri string) (u *url.URL, why string) {
	if len(uri) > maxURIBytes {
		return nil, "it has " + strconv.Itoa(len(uri)) + " bytes: use at most " + strconv.Itoa(maxURIBytes)
	}
	u, err := url.Parse(uri)
	if err != nil { // The error repeats the URI, and so what may be a credential.
		return nil, "it is no URI: write scheme://host/path"
	}
	switch {
	case u.Scheme == "":
		why = "it has no scheme: write scheme://host/path"
	case u.User != nil:
		why = "it has credentials: remove them, and configure the process with them"
	case strings.Contains(uri, "#"):
		why = "it has a fragment: remove # and what follows"
	case u.Opaque != "" || !strings.HasPrefix(uri[len(u.Scheme):], "://"):
		why = "there is no // after the scheme: write scheme://host/path"
	case !utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, func(c rune) bool { return c == '\\' || unicode.IsControl(c) }):
		why = "its path has a backslash, a control character or text other than UTF-8: remove it"
	case u.Path != "" && u.Path != "/" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/"):
		why = "its path has empty parts, or . or ..: write it without them"
	case u.Scheme == "file":
		why = fileFault(u)
	case u.Hostname() == "":
		why = "it has no host: write scheme://host/path"
	}
	if why != "" {
		return nil, why
	}
	return u, ""
}

func fileFault(u *url.URL) string {
	if u.Host != "" || u.RawQuery != "" || u.ForceQuery || u.Path == "" || strings.HasSuffix(u.Path, "/") {
		return "a file has an absolute path, and no host and no query: write file:///folder/name"
	}
	return ""
}

// FileURI returns the URI of a file or folder of this machine. A relative path is one of the
// working directory. The error says why the path can have no URI.
func FileURI(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	uri := (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()
	if why := CheckURI(uri); why != "" {
		return "", invalid("name", uri, "%s", why)
	}
	return uri, nil
}

// Shown returns a URI as an error may show it: without credentials, query and fragment.
func Shown(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Opaque != "" || len(uri) > maxURIBytes {
		return "(unreadable URI)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
