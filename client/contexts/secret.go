package contexts

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecret bounds a file with a token, in bytes: access tokens are longer than API tokens.
const maxSecret = 16 << 10

// ReadSecret returns the text in a file that only its owner may read. The error begins with the
// file's name.
func ReadSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf(": %w; name a file that this user can read", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf(": %w", err)
	case info.IsDir():
		return "", fmt.Errorf(" %s: it is a directory; name a file", path)
	case info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf(" %s: other users can read it; make it readable for its owner alone (chmod 600)", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf(" %s: %w", path, err)
	}
	if len(text) > maxSecret {
		return "", fmt.Errorf(" %s: it is larger than a token can be", path)
	}
	return strings.TrimSpace(string(text)), nil
}
