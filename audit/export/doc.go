// Package export writes the events of an audit window to files, and verifies such files with only a
// public key (READ-4, APP-11).
//
//	            Writer                                     Verify
//	Record ──► JSON lines, CSV, Parquet ──► file ──► pieces ──► parse, hash ──► follow ──► Report
//	                    ▲                            one        several,        one:
//	                    │                            reader     in parallel     order, bounds,
//	     manifest: the note that the                                            chains, window
//	     cluster signed                                                         digest, manifest
//
// A file has the events in commit order and ends with a manifest; a file without a manifest was
// cut. All formats hold the same fields of a record, exactly: every text, every nanosecond, and the
// payload byte for byte, because its digest covers these. docs/audit.md describes the formats for
// other programs.
//
// Writers and readers hold a bounded part of a file at a time.
package export
