package clienttest_test

import "testing"

// TestStartRun runs the test that the example shows.
func TestStartRun(t *testing.T) { testStartRun(t) }

// TestStartLater runs the one in fake time.
func TestStartLater(t *testing.T) { testStartLater(t) }

// TestOutage runs the test of a Writer.
func TestOutage(t *testing.T) { testOutage(t) }
