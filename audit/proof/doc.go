// Package proof is what an auditor needs who trusts nobody: signed notes, the tree over the heads
// of all runs, and the verification of both, with nothing but a public key. It reads no clock, no
// disk and no network; docs/audit.md describes every format byte by byte.
//
// All that a cluster signs is a note of the form that transparency logs use (C2SP signed-note):
// lines of text, an empty line, and signatures with Ed25519 keys (RFC 8032). The text is a
// Statement: a title that says what it is, so that a signature under one kind of statement is never
// good for another, and then a line for each fact, in a fixed order.
package proof
