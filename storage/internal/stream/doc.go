// Package stream encodes and decodes a checkpoint that one node sends to another: the manifest that
// lists its files, and the checksums around their bytes.
//
//	sender    Manifest.Bytes ──► files, each with AppendChecksum ──► AppendChecksum
//	receiver  Summing ──► ReadManifest ──► Fill, Check a file ──► Check of the whole
//
// Invariants:
//
//   - Nothing of a manifest is believed before its checksum fits.
//   - No name in a manifest leads out of the directory that receives the files, and no name comes
//     twice.
//   - A stream that ends early is an error, and never looks like a shorter stream.
//
// A Summing is used once, by one goroutine.
package stream
