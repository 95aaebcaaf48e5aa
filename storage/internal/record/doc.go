// Package record encodes and decodes what the store is made of: commands and proposals of the log,
// and the rows that apply leaves in the database.
//
//	EncodeAppend, EncodeCommand ──► Command ──► Proposal ──► log entry
//	ParseProposal ──► Entry ──► ParseCommand ──► AppendCommand or ParsedOperations
//	Block ──► chunk ──► ChunkReader ──► Block ──► Records
//	Head, Receipt, Place, Tenants ──► rows ──► Rows finds them again
//	Applied, Membership, level ──► one row each ──► ReadApplied, ReadMembership, ReadLevel
//
// Invariants:
//
//   - The bytes are a function of the values alone, the same on every node.
//   - Whatever the bytes are, decoding gives a value or an error, and never panics.
//   - A decoded value aliases the bytes that it comes from, and is valid only as long as they are.
//
// A value has no lifecycle. Only Rows holds resources: iterators, which Close releases.
package record
