// Package proof lets an auditor verify a cluster's statements with nothing but a public key: signed
// notes, and the tree over the heads of all runs. It reads no clock, no disk and no network;
// docs/audit.md describes every format byte by byte.
//
// A cluster signs notes in the form of transparency logs (C2SP signed-note): lines of text, an
// empty line, and signatures with Ed25519 keys (RFC 8032). The text is a Statement: a title with
// its kind, so that a signature under one kind is not valid for another, and then one line a fact,
// in a fixed order.
package proof
