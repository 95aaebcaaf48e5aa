package export

import (
	"fmt"

	"runlog/audit/proof"
)

// Manifest is a file's signed statement about itself.
type Manifest struct {
	proof.Export
	// Signers are the claimed signers, as name and key id. None: unsigned.
	Signers []string
	// Key is the public key with which the signature was verified; empty: it was not.
	Key string
}

// readManifest reads a manifest, and verifies the signature of one of the public keys, if there are
// any. unsigned is the fault of the signature; err wraps errFile.
func readManifest(note string, keys []string) (m Manifest, unsigned, err error) {
	st, signers, err := proof.Peek(note)
	if err != nil {
		return m, nil, fmt.Errorf("%w: its manifest: %w", errFile, err)
	}
	e, err := proof.ParseExport(st)
	if err != nil {
		return m, nil, fmt.Errorf("%w: its manifest: %w", errFile, err)
	}
	m = Manifest{Export: *e, Signers: signers}
	if len(keys) > 0 {
		_, m.Key, unsigned = proof.Open(note, keys...)
	}
	return m, unsigned, nil
}
