package rpc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"runlog/storage"
)

// TokenKind is the first byte of a token and names its use. Kinds are never reused.
type TokenKind byte

// The kinds of tokens.
const (
	TokenPosition      TokenKind = 1  // a place in the commit order
	TokenWatch         TokenKind = 2  // a watch of one run
	TokenPage          TokenKind = 3  // a list of runs
	TokenRuns          TokenKind = 4  // a watch of many runs
	TokenWindow        TokenKind = 5  // an audit window
	TokenCheckpoint    TokenKind = 6  // a list of signed checkpoints
	TokenSignedWindow  TokenKind = 7  // an audit window, with the cluster's signature
	TokenRunsEvents    TokenKind = 8  // a watch of the events of many runs
	TokenTokens        TokenKind = 9  // a list of API tokens
	TokenQueues        TokenKind = 10 // a list of queues
	TokenQueuedRuns    TokenKind = 11 // a list of the runs of a queue
	TokenSubscriptions TokenKind = 12 // a list of subscriptions
	TokenDeadLetters   TokenKind = 13 // a list of dead letters
)

var strict = base64.RawURLEncoding.Strict()

// decodeToken decodes base64url strictly: it refuses a second spelling of the same bytes. The
// standard decoder alone ignores line breaks.
func decodeToken(token string) ([]byte, error) {
	if strings.ContainsAny(token, "\r\n") {
		return nil, base64.CorruptInputError(0)
	}
	return strict.DecodeString(token)
}

// FormatPosition returns the token of a position: base64url of the kind and a uvarint. With
// partitions a position will become a vector, so clients must treat the token as opaque.
func FormatPosition(p storage.Position) string {
	return strict.EncodeToString(binary.AppendUvarint([]byte{byte(TokenPosition)}, uint64(p)))
}

// ParsePosition parses the position in a field of a request.
func ParsePosition(field, token string) (storage.Position, error) {
	if b, err := decodeToken(token); err == nil && len(b) > 1 && b[0] == byte(TokenPosition) {
		if p, n := binary.Uvarint(b[1:]); n == len(b)-1 {
			return storage.Position(p), nil
		}
	}
	return 0, Invalid(field, "is not a position of this API: pass on a position as you got it")
}

// checkBytes is the length of a token's checksum.
const checkBytes = 12

// TokenDomain is the codec of the tokens for one use on one cluster. Such a token is base64url of
// kind:1 body check:12. The check is the prefix of a SHA-256 over the domain, the kind and the
// body. It detects tokens that were changed, or that belong to another use or cluster. It is no
// secret and grants no rights.
type TokenDomain [sha256.Size]byte

// NewTokenDomain returns the domain of a use. Parts are the values that bind the tokens, such as
// the run or the filter.
func NewTokenDomain(use string, cluster storage.ClusterID, parts ...string) TokenDomain {
	b := append([]byte("runlog "+use+"\x00"), cluster[:]...)
	for _, part := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return sha256.Sum256(b)
}

func (d *TokenDomain) check(token []byte) []byte {
	sum := sha256.Sum256(append(d[:len(d):len(d)], token...))
	return sum[:checkBytes]
}

// Seal returns the token with a body.
func (d *TokenDomain) Seal(kind TokenKind, body []byte) string {
	b := append([]byte{byte(kind)}, body...)
	return strict.EncodeToString(append(b, d.check(b)...))
}

// Open returns a token's kind and body; ok is false for a token that Seal did not return.
func (d *TokenDomain) Open(token string) (kind TokenKind, body []byte, ok bool) {
	b, err := decodeToken(token)
	if err != nil || len(b) < 1+checkBytes {
		return 0, nil, false
	}
	end := len(b) - checkBytes
	return TokenKind(b[0]), b[1:end:end], bytes.Equal(b[end:], d.check(b[:end]))
}

// OpenAs is Open for tokens of one kind.
func (d *TokenDomain) OpenAs(kind TokenKind, token string) (body []byte, ok bool) {
	is, body, ok := d.Open(token)
	return body, ok && is == kind
}

// KindOf returns the kind that a token claims, even if the rest of it is damaged; 0 for a text that
// is not a token.
func KindOf(token string) TokenKind {
	b, err := base64.RawURLEncoding.DecodeString(token[:min(len(token), 4)])
	if err != nil || len(b) == 0 {
		return 0
	}
	return TokenKind(b[0])
}

// StartAgain is the last part of an error about a page token: the remedy that always works.
const StartAgain = ", or omit pageToken to start again"
