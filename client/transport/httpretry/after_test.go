package httpretry_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"runlog/client/transport/httpretry"
)

// TestAfter: what RFC 9110 (10.2.3) allows, and numbers of any length.
func TestAfter(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	const longest = math.MaxInt64 / time.Second * time.Second
	for header, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, "007": 7 * time.Second, "4294967295": 4294967295 * time.Second,
		"4294967296": 4294967296 * time.Second, "4294967297": 4294967297 * time.Second, "9999999999": longest,
		"9223372036": longest, "9223372037": longest, "18446744073709551615": longest, "18446744073709551616": longest,
		strings.Repeat("9", 40): longest, strings.Repeat("9", 10_000): longest,
		"Wed, 25 Nov 2026 12:01:30 GMT": 90 * time.Second, "Wed, 25 Nov 2026 11:59:59 GMT": 0,
		"Wednesday, 25-Nov-26 12:01:30 GMT": 90 * time.Second, "Fri, 31 Dec 9999 23:59:59 GMT": math.MaxInt64,
		"Mon, 01 Jan 0001 00:00:00 GMT": 0,
	} {
		if got, ok := httpretry.After(header, now); !ok || got != want {
			t.Errorf("%.50q: %v, %t; want %v", header, got, ok, want)
		}
	}
	for _, header := range []string{"", "-1", "+1", "1.5", "1e3", "0x10", "1_000", "soon", "1 2", strings.Repeat("9", 40) + "x"} {
		if got, ok := httpretry.After(header, now); ok {
			t.Errorf("%q is taken for %v", header, got)
		}
	}
}
