package record

import "runlog/proto/contract"

// KeyHash is the SHA-256 of an idempotency key.
type KeyHash [32]byte

// KeyPrefix is the first half of a KeyHash.
type KeyPrefix [16]byte

// Prefix is what memory holds of the hash.
func (h *KeyHash) Prefix() KeyPrefix { return KeyPrefix(h[:16]) }

// Header is the fixed part of an event that apply needs.
type Header struct {
	Key     KeyHash
	Record  contract.Digest
	EventID contract.EventID
	Content [8]byte
}

// ParseHeader decodes the first HeaderSize bytes of b.
func ParseHeader(b []byte) Header {
	return Header{
		Key:     KeyHash(b[0:32]),
		Record:  contract.Digest(b[32:64]),
		EventID: contract.EventID(b[64:80]),
		Content: [8]byte(b[80:88]),
	}
}

// Fingerprint is what an event says, as far as apply tells two of one key apart. It is keyed with
// the secret of the cluster (Keyer).
type Fingerprint struct {
	Content  [8]byte
	Imported [8]byte // zero unless imported
}

// Same compares whole records where both were imported, else what IDM-7 compares.
func (s Fingerprint) Same(t Fingerprint) bool {
	var none [8]byte
	if s.Imported != none && t.Imported != none {
		return s.Imported == t.Imported
	}
	return s.Content == t.Content
}
