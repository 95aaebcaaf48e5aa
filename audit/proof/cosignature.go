package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	keyIDSize = 4
	timeSize  = 8
)

// WitnessKey is the public key of a witness. It is a note.Verifier of cosignatures.
type WitnessKey struct {
	name string
	id   uint32
	kind *cosignerKind
	key  []byte
}

var _ note.Verifier = (*WitnessKey)(nil)

// ParseWitnessKey parses a witness's public key in its text form, name+id+key with the id in eight
// hexadecimal digits and the key in base64 (C2SP signed-note), of an Ed25519 or ML-DSA-44 cosigner.
// The error is ErrKey.
func ParseWitnessKey(text string) (*WitnessKey, error) {
	fault := func(what string) error { return fmt.Errorf("%w: %.200q %s", ErrKey, text, what) }
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || !isKeyName(parts[0]) {
		return nil, fault("is not of the form name+id+key")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || base64.StdEncoding.EncodeToString(raw) != parts[2] || len(raw) == 0 {
		return nil, fault("has no key in base64")
	}
	kind := cosignerKindOfKey(raw)
	if kind == nil || len(raw) != 1+kind.public {
		return nil, fault(fmt.Sprintf("is no Ed25519 or ML-DSA-44 key of a witness: its key has type %d and %d bytes", raw[0], len(raw)))
	}
	if kind.maxName > 0 && len(parts[0]) > kind.maxName {
		return nil, fault(fmt.Sprintf("has a name of more than %d bytes", kind.maxName))
	}
	k := &WitnessKey{name: parts[0], id: cosignerID(parts[0], raw), kind: kind, key: raw[1:]}
	if fmt.Sprintf("%08x", k.id) != parts[1] {
		return nil, fault("has an id that is not of its name and key")
	}
	return k, nil
}

// cosignerID returns the id of a key, whose first byte is its kind.
func cosignerID(name string, raw []byte) uint32 {
	sum := sha256.Sum256(slices.Concat([]byte(name+"\n"), raw))
	return binary.BigEndian.Uint32(sum[:])
}

// keyText returns the text form of a key, whose first byte is its kind.
func keyText(name string, id uint32, raw []byte) string {
	return fmt.Sprintf("%s+%08x+%s", name, id, base64.StdEncoding.EncodeToString(raw))
}

// isKeyName reports whether a note can be signed under a name (C2SP signed-note).
func isKeyName(name string) bool {
	raw := make([]byte, ed25519.PublicKeySize)
	key, err := note.NewEd25519VerifierKey(name, raw)
	if err == nil {
		_, err = note.NewVerifier(key)
	}
	return err == nil
}

// String returns the text form.
func (k *WitnessKey) String() string {
	return keyText(k.name, k.id, append([]byte{k.kind.alg}, k.key...))
}

// Type returns KeyEd25519 or KeyMLDSA44.
func (k *WitnessKey) Type() string { return k.kind.name }

// Name implements note.Verifier.
func (k *WitnessKey) Name() string { return k.name }

// KeyHash implements note.Verifier.
func (k *WitnessKey) KeyHash() uint32 { return k.id }

// ID returns what names the key in a signature: name+id.
func (k *WitnessKey) ID() string { return fmt.Sprintf("%s+%08x", k.name, k.id) }

// Same reports whether two keys have the same secret part, whatever their names.
func (k *WitnessKey) Same(other *WitnessKey) bool {
	return k.kind == other.kind && bytes.Equal(k.key, other.key)
}

// Verify implements note.Verifier. The signature is a time, in seconds in eight bytes, and the 64
// bytes of Ed25519, or the 2,420 of ML-DSA-44, with which the text has to be that of a Checkpoint.
func (k *WitnessKey) Verify(body, signature []byte) bool {
	if len(signature) != timeSize+k.kind.signature {
		return false
	}
	seconds := binary.BigEndian.Uint64(signature)
	if seconds == 0 || int64(seconds) < 0 {
		return false
	}
	message, err := k.kind.message(k.name, string(body), seconds)
	return err == nil && k.kind.verify(k.key, message, signature[timeSize:])
}

// Cosignature is a witness's verified signature under a checkpoint.
type Cosignature struct {
	Key *WitnessKey
	// At is when the witness signed, by its own clock.
	At time.Time
	// Line is the signature, with its line feed.
	Line string
}

// Cosignatures returns the verified signatures of these witnesses under a checkpoint: of each that
// signed it the one with the latest time, in the order of the keys. Signatures of others are not
// looked at. The error is ErrNote, or ErrSignature if one names a key of a witness and is not by
// it.
func Cosignatures(text string, keys ...*WitnessKey) ([]Cosignature, error) {
	body, signatures, err := split(text)
	if err != nil {
		return nil, err
	}
	if err := checkSignatures(text, signatures); err != nil {
		return nil, err
	}
	latest := map[*WitnessKey]Cosignature{}
	for line := range strings.Lines(signatures) {
		name, id, raw, err := parseSignature(line)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(keys, func(k *WitnessKey) bool { return k.name == name && k.id == id })
		if i < 0 {
			continue
		}
		if !keys[i].Verify([]byte(body), raw) {
			return nil, fmt.Errorf("%w: key %s+%08x of a witness", ErrSignature, name, id)
		}
		at := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0).UTC()
		if at.After(latest[keys[i]].At) {
			latest[keys[i]] = Cosignature{keys[i], at, line}
		}
	}
	var found []Cosignature
	for _, k := range keys {
		if c, ok := latest[k]; ok {
			found = append(found, c)
			delete(latest, k)
		}
	}
	return found, nil
}

// parseSignature parses a signature line of a note.
func parseSignature(line string) (name string, id uint32, signature []byte, err error) {
	fault := fmt.Errorf("%w: %q is no signature", ErrNote, line)
	rest, dash := strings.CutPrefix(line, signatureLine)
	rest, whole := strings.CutSuffix(rest, "\n")
	name, text, ok := strings.Cut(rest, " ")
	if !dash || !whole || !ok || name == "" {
		return "", 0, nil, fault
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) <= keyIDSize || base64.StdEncoding.EncodeToString(raw) != text {
		return "", 0, nil, fault
	}
	return name, binary.BigEndian.Uint32(raw), raw[keyIDSize:], nil
}
