// Package mutants breaks the product on purpose, to see whether the simulator notices.
//
//	table ──► Overlay: copies of files, each with a bug ──► go test -c -overlay ──► a simulator with that bug in it
//	                                                                                      │ seed after seed
//	                                                                                      ▼
//	                                                        found: by which invariant, with which seed, after how long
//
// A mutant is a few lines of a file that are replaced by others: of the product, or of a library
// that it stands on. Nothing of it is in any binary but the simulator's that is built for it. A
// simulator that does not find one in a minute is too weak, whatever else it has survived. What has
// no bug must come out clean of the same seeds.
//
// The table cannot rot unnoticed: a test that takes no time finds every text that is to be
// replaced, once, and parses what comes of it.
package mutants
