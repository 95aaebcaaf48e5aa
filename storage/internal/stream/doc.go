// Package stream encodes and decodes a checkpoint on its way between nodes: the manifest that lists
// its files, and the checksums around their bytes.
//
//	sender    Manifest.Bytes ──► files, each with AppendChecksum ──► AppendChecksum
//	receiver  Summing ──► ReadManifest ──► Fill, Check a file ──► Check of the whole
//
// Invariants:
//
//   - Nothing of a manifest is believed before its checksum fits.
//   - The names in a manifest lead out of no directory, and none comes twice.
//   - A stream that ends early is an error, and never looks like a shorter stream.
//
// A Summing is used once, by one goroutine.
package stream
