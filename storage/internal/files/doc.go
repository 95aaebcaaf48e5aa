// Package files makes and replaces files and directories so that they survive a loss of power.
//
//	Replace   temporary file ──► Restrict ──► write ──► sync ──► rename ──► SyncDir
//	MakeDir   make ──► SyncDir of the directory above
//	markers   SyncDir ──► make, or remove, the marker of a Pebble database
//
// Invariants:
//
//   - A restart finds the old file or the new one, whole.
//   - A file never has more permissions than its mode gives, also before its first byte.
//   - After a call without an error, a restart finds what the call has made.
//
// The package keeps no state. A caller has one Replace of a path at a time.
package files
