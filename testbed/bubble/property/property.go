// Package property checks properties with rapid in fake time. It is apart from package bubble, so
// that the kits for authors of engines do not depend on rapid.
package property

import (
	"testing"

	"pgregory.net/rapid"
)

// Check checks a property in the bubble of its test, as rapid.Check does outside of one.
func Check(t testing.TB, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(struct{ testing.TB }{t}, property) // rapid asks a *testing.T for its deadline.
}
