package proof

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

var (
	// ErrUnsigned means that a note has no signature.
	ErrUnsigned = errors.New("proof: the note is not signed")
	// ErrUnknownKey means that no signature of a note is by a key of the verifier. The note may
	// still be good: after a key rotation a cluster signs with the new key.
	ErrUnknownKey = errors.New("proof: not signed by a key that was named")
	// ErrKey means that a text is no public key.
	ErrKey = errors.New("proof: not a public key")
	// ErrSignature means that a note was changed after it was signed, or was never signed with the
	// key that it names.
	ErrSignature = errors.New("proof: the signature does not fit the note")
	// ErrNote means that a text is no note.
	ErrNote = errors.New("proof: not a note")
)

// algEd25519 is the first byte of a key in a note's signature and verifier key (C2SP signed-note).
const algEd25519 = 1

// KeyName is the name under which a cluster signs.
func KeyName(cluster [16]byte) string { return fmt.Sprintf("runlog/%x", cluster[:]) }

// Signer signs notes with a cluster's key.
type Signer struct {
	signer note.Signer
	public string
}

// NewSigner returns the signer of a cluster with the key of a seed (RFC 8032). Keep the seed
// secret.
func NewSigner(cluster [16]byte, seed [ed25519.SeedSize]byte) (*Signer, error) {
	public, err := PublicKey(cluster, ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	name, rest, _ := strings.Cut(public, "+")
	id, _, _ := strings.Cut(rest, "+")
	private := append([]byte{algEd25519}, seed[:]...)
	s, err := note.NewSigner("PRIVATE+KEY+" + name + "+" + id + "+" + base64.StdEncoding.EncodeToString(private))
	if err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	return &Signer{s, public}, nil
}

// PublicKey returns the text form of a cluster's public key, in which verifiers take it:
// name+id+key, the id in eight hexadecimal digits, the key in base64 (C2SP signed-note).
func PublicKey(cluster [16]byte, key ed25519.PublicKey) (string, error) {
	text, err := note.NewEd25519VerifierKey(KeyName(cluster), key)
	if err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	return text, nil
}

// PublicKey returns the text form of the signer's public key.
func (s *Signer) PublicKey() string { return s.public }

// Sign returns a statement as a signed note.
func (s *Signer) Sign(st *Statement) (string, error) { return s.sign(st.String()) }

func (s *Signer) sign(text string) (string, error) { return signAs(text, s.signer) }

func signAs(text string, by note.Signer) (string, error) {
	signed, err := note.Sign(&note.Note{Text: text}, by)
	if err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	return string(signed), nil
}

// SignBytes signs data that is no note: the 64 bytes of a signature over the title, a zero byte,
// which no note has, and the data.
func (s *Signer) SignBytes(title string, data []byte) ([]byte, error) {
	signature, err := s.signer.Sign(titled(title, data))
	if err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	return signature, nil
}

// VerifyBytes reports whether a signature was made by SignBytes, with a public key in its text
// form.
func VerifyBytes(publicKey, title string, data, signature []byte) bool {
	v, err := note.NewVerifier(publicKey)
	return err == nil && v.Verify(titled(title, data), signature)
}

func titled(title string, data []byte) []byte {
	return append(append([]byte(title), 0), data...)
}

// KeyID returns the id in a public key's text form, in eight hexadecimal digits, or the fault of
// the key.
func KeyID(publicKey string) (string, error) {
	v, err := note.NewVerifier(publicKey)
	if err != nil || strings.ContainsAny(publicKey, "\r\n") { // which base64 passes over
		return "", fmt.Errorf("%w: %q is not of the form name+id+key", ErrKey, publicKey)
	}
	id := fmt.Sprintf("%08x", v.KeyHash())
	if !strings.HasPrefix(publicKey, v.Name()+"+"+id+"+") {
		return "", fmt.Errorf("%w: %q does not have its id in lower case", ErrKey, publicKey)
	}
	return id, nil
}

// Open verifies that a note was signed with one of the public keys, in their text form, and returns
// its statement and the key. The errors are ErrNote, ErrUnsigned, ErrUnknownKey, ErrSignature,
// ErrStatement and ErrKey.
func Open(text string, publicKeys ...string) (*Statement, string, error) {
	body, key, err := openText(text, publicKeys)
	if err != nil {
		return nil, "", err
	}
	st, err := ParseStatement(body)
	if err != nil {
		return nil, "", err
	}
	return st, key, nil
}

// openText verifies a note and returns its text and the key.
func openText(text string, publicKeys []string) (body, key string, err error) {
	keys := map[note.Verifier]string{}
	var verifiers []note.Verifier
	for _, key := range publicKeys {
		v, err := note.NewVerifier(key)
		if err != nil {
			return "", "", fmt.Errorf("%w: %q is not of the form name+id+key", ErrKey, key)
		}
		keys[v] = key
		verifiers = append(verifiers, v)
	}
	body, signatures, err := split(text)
	if err != nil {
		return "", "", err
	}
	if signatures == "" {
		return "", "", ErrUnsigned
	}
	n, err := note.Open([]byte(text), note.VerifierList(verifiers...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return "", "", fmt.Errorf("%w, but by %s", ErrUnknownKey, signers(unverified.Note))
	case errors.As(err, &invalid):
		return "", "", fmt.Errorf("%w: key %s+%08x", ErrSignature, invalid.Name, invalid.Hash)
	case err != nil:
		return "", "", fmt.Errorf("%w: %w", ErrNote, err)
	}
	if err := strict(n); err != nil {
		return "", "", err
	}
	for _, v := range verifiers {
		if s := n.Sigs[0]; v.Name() == s.Name && v.KeyHash() == s.Hash {
			return body, keys[v], nil
		}
	}
	return "", "", ErrUnknownKey // not reached: Open gives signatures of the verifiers alone
}

// strict refuses signatures with unused base64 bits set: a changed note must never pass.
func strict(n *note.Note) error {
	for _, s := range slices.Concat(n.Sigs, n.UnverifiedSigs) {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return fmt.Errorf("%w: key %s+%08x: %w", ErrSignature, s.Name, s.Hash, err)
		}
	}
	return nil
}

func signers(n *note.Note) string {
	var names []string
	for _, s := range n.UnverifiedSigs {
		names = append(names, fmt.Sprintf("%s+%08x", s.Name, s.Hash))
	}
	return strings.Join(names, ", ")
}

// Peek returns the statement of a note, and the claimed signers as name+id, without verifying a
// signature; none: unsigned.
func Peek(text string) (*Statement, []string, error) {
	body, who, err := peekText(text)
	if err != nil {
		return nil, nil, err
	}
	st, err := ParseStatement(body)
	return st, who, err
}

func peekText(text string) (body string, who []string, err error) {
	body, signatures, err := split(text)
	if err != nil || signatures == "" {
		return body, nil, err
	}
	_, err = note.Open([]byte(text), note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if !errors.As(err, &unverified) {
		return "", nil, fmt.Errorf("%w: %w", ErrNote, err)
	}
	return body, strings.Split(signers(unverified.Note), ", "), nil
}

// split cuts a note into its text and its signatures. The text ends in a line feed.
func split(text string) (body, signatures string, err error) {
	at := strings.LastIndex(text, "\n\n")
	if at < 0 {
		return "", "", fmt.Errorf("%w: it has no empty line before its signatures", ErrNote)
	}
	return text[:at+1], text[at+2:], nil
}

// signedOnce refuses a note unless it has exactly one signature: further ones are not verified.
func signedOnce(text string) error {
	_, signatures, err := split(text)
	if err == nil && strings.Count(signatures, "\n") != 1 {
		err = fmt.Errorf("%w: it has not exactly one signature", ErrNote)
	}
	return err
}

// Unsigned returns a statement as a note without a signature.
func Unsigned(st *Statement) string { return st.String() + "\n" }
