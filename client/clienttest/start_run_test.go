package clienttest_test

import "testing"

// TestStartRun runs the test that the example shows.
func TestStartRun(t *testing.T) { testStartRun(t) }
