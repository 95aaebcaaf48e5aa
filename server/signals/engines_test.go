package signals

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCapabilitiesSIG3ENG1: the log knows the capabilities of each engine of this module, as
// planners do.
func TestCapabilitiesSIG3ENG1(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../engine/*/adapterCapabilities.json")
	if err != nil || len(files) != len(obeyed) {
		t.Errorf("%d engines are known, and there are %q, %v", len(obeyed), files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Adapter string
			Signals []string
		}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(file, err)
		}
		if !slices.Equal(obeyed[c.Adapter], c.Signals) {
			t.Errorf("%s obeys %q, and the log knows %q", c.Adapter, c.Signals, obeyed[c.Adapter])
		}
	}
}
