// Package export writes the events of an audit window to files, and verifies such files with
// nothing but themselves and a public key (READ-4, APP-11).
//
//	            Writer                                     Verify
//	Record ──► JSON lines, CSV, Parquet ──► file ──► pieces ──► parse, hash ──► follow ──► Report
//	                    ▲                            one        several,        one:
//	                    │                            reader     in parallel     order, bounds, chains,
//	     manifest: the note that the cluster signed                             window digest, manifest
//
// A file has the events in commit order and ends with a manifest: one without it was cut. What a
// record is made of is the same in all formats, and each keeps it exactly: every text, every
// nanosecond, and the payload byte for byte, since its digest is over these. docs/audit.md
// describes the formats for those who read them with programs of their own.
//
// Writers and readers hold a bounded part of a file at a time.
package export
