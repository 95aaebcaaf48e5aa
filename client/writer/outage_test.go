package writer_test

import "testing"

// TestOutage runs the test that the example shows.
func TestOutage(t *testing.T) { testOutage(t) }
