package outbox

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesOfOtherFiles: Open of "box" removes box.new, and empties box.lock. So no outbox has such
// a name.
func TestNamesOfOtherFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"box.new", "box.lock"} {
		path := filepath.Join(t.TempDir(), name)
		o, err := Open(path, Options{})
		if err == nil {
			_ = o.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "choose another name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
