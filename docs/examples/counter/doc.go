// Package counter is the worked example of docs/extending.md: a service that counts under names. It
// is compiled and tested like everything else, and no program links it.
//
// The package is the deterministic half: a machine with one table and one operation.
//
//	C name   value:8
//
// Invariant: no value is above Limit.
package counter
