// Package artifact stores the files that steps leave, and reads them again with a check of their
// digests. Events have references, and never the bytes.
//
//	reader ─► Store.Put ─► temporary file: SHA-256, length ─► Blobs.Put ─► Ref
//	                                                                         │
//	reader ◄─ digest compared at the end ◄─ Blobs.Open ◄─ Store.Open ◄───────┘
//
// The URI of an artifact is that of its run, step and attempt, with the digest at the end:
//
//	BASE/RUN/STEP/ATTEMPT/SHA256
//
// So Put may be repeated: the same bytes of the same attempt have the same URI, and other bytes
// never replace them. The artifacts of a run lie below one folder, which ends with the run.
//
// Invariants:
//   - A Ref is returned only after the blob is on stable storage.
//   - A reader of Open reports io.EOF only if the bytes are those of the Ref. It reports ErrCorrupt
//     otherwise. A caller that needs all or nothing waits for io.EOF before it uses them.
package artifact
