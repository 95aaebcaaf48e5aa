package storagetest

import "testing"

// Draws is how many seeds a test tries that counts its seeds itself: full of them, or a tenth with
// -short. rapid tries a fifth then.
func Draws(full uint64) uint64 {
	if testing.Short() {
		return max(1, full/10)
	}
	return full
}

// Large skips a test with -short that only computes more than others. make test runs it without the
// race detector, which slows computing down by a factor of ten; the goroutines of such a test do
// nothing that those of others do not.
func Large(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("computes much")
	}
}
