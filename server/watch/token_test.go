package watch

import (
	"testing"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/storage"
)

// TestRunsTokens parses formatted tokens back, and wants different tokens for different filters.
func TestRunsTokens(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range []run.Filter{{}, {TenantID: "ab"}, {TenantID: "a", ProjectID: "b"}, {ProjectID: "ab"}, {Statuses: 1}} {
		for _, at := range []runsPlace{{}, {cursor: watch.Cursor{Position: 1 << 50, Ahead: 3}}, {listing: []byte("key")}} {
			tokens := newRunsTokens(storage.Incarnation{1}, &f)
			text := tokens.format(at)
			got, ok := tokens.parse(text)
			if !ok || got.cursor != at.cursor || string(got.listing) != string(at.listing) || seen[text] {
				t.Errorf("%v %v: %v %v", f, at, got, ok)
			}
			seen[text] = true
		}
	}
}
