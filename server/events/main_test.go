package events_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain makes rapid's properties short: each check starts nodes. -rapid.checks, or RAPID_CHECKS,
// asks for more.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		if err := flag.Set("rapid.checks", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}
