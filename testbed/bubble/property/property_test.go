package property_test

import (
	"testing"

	"pgregory.net/rapid"

	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// TestCheck: rapid checks properties in a bubble.
func TestCheck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		drawn := 0
		property.Check(t, func(t *rapid.T) { drawn += rapid.IntRange(1, 2).Draw(t, "n") })
		if drawn == 0 {
			t.Error("nothing was checked")
		}
	})
}
