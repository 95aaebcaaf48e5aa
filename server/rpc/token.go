package rpc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"runlog/proto/contract"
	"runlog/storage"
)

// TokenKind is the first byte of a token and names its use. Kinds are never reused.
type TokenKind byte

// The kinds of tokens. 1 was that of a position.
const (
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
	TokenSnapshot      TokenKind = 14 // the pages of a snapshot
	TokenDiff          TokenKind = 15 // the pages of what differs in a run
	TokenExplain       TokenKind = 16 // the pages of what explains a step
)

var strict = base64.RawURLEncoding.Strict()

// A token, and a position, begins with the incarnation in which it was given and a hyphen (READ-7).
const incarnationText = 2*len(storage.Incarnation{}) + 1

// within returns the part of a token behind the incarnation. ok is false for a text that begins
// with none.
func within(token string) (of storage.Incarnation, rest string, ok bool) {
	if len(token) < incarnationText || token[incarnationText-1] != '-' {
		return of, "", false
	}
	digits, rest := token[:incarnationText-1], token[incarnationText:]
	if _, err := hex.Decode(of[:], []byte(digits)); err != nil || of.String() != digits {
		return of, "", false
	}
	return of, rest, true
}

// Refused is the error about a token, or a position, that was not taken: RESUME_TOKEN_INVALID if it
// belongs to another incarnation, and otherwise the given one.
func Refused(field, token string, in storage.Incarnation, otherwise error) error {
	of, _, ok := within(token)
	if !ok || of == in {
		return otherwise
	}
	return &contract.Error{Reason: contract.ReasonResumeTokenInvalid,
		Metadata: map[string]string{"field": field, "incarnation": of.String(), "current": in.String()},
		Message: fmt.Sprintf("%s was given by incarnation %v, and this is %v: by another cluster, or before this one was restored or recovered; "+
			"forget it and start again from the beginning, or from a fresh snapshot", field, of, in)}
}

// decodeToken decodes the base64url of a token strictly: it refuses a second spelling of the same
// bytes. The standard decoder alone ignores line breaks.
func decodeToken(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, base64.CorruptInputError(0)
	}
	return strict.DecodeString(text)
}

// AppendIncarnation appends what a text that a service gives a caller to keep begins with: the
// incarnation and a hyphen.
func AppendIncarnation(dst []byte, in storage.Incarnation) []byte {
	return append(hex.AppendEncode(dst, in[:]), '-')
}

// FormatPosition returns the token of a position: the incarnation, a hyphen and the position in
// decimal digits. With partitions a position will become a vector, so clients must treat the token
// as opaque.
func FormatPosition(in storage.Incarnation, p storage.Position) string {
	b := AppendIncarnation(make([]byte, 0, incarnationText+20), in)
	return string(strconv.AppendUint(b, uint64(p), 10))
}

// ParsePosition parses the position in a field of a request.
func ParsePosition(field, token string, in storage.Incarnation) (storage.Position, error) {
	of, digits, ok := within(token)
	if p, err := strconv.ParseUint(digits, 10, 64); ok && of == in && err == nil && strconv.FormatUint(p, 10) == digits {
		return storage.Position(p), nil
	}
	return 0, Refused(field, token, in, Invalid(field, "is not a position of this API: pass on a position as you got it"))
}

// checkBytes is the length of a token's checksum.
const checkBytes = 12

// TokenDomain is the codec of the tokens for one use in one incarnation of a cluster. Such a token
// is the incarnation, a hyphen, and base64url of kind:1 body check:12. The check is the prefix of a
// SHA-256 over the domain, the kind and the body. It detects tokens that were changed, or that
// belong to another use. It is no secret and grants no rights.
type TokenDomain struct {
	in  storage.Incarnation
	use [sha256.Size]byte
}

// NewTokenDomain returns the domain of a use. Parts are the values that bind the tokens, such as
// the run or the filter.
func NewTokenDomain(use string, in storage.Incarnation, parts ...string) TokenDomain {
	b := append([]byte("runlog "+use+"\x00"), in[:]...)
	for _, part := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return TokenDomain{in, sha256.Sum256(b)}
}

func (d *TokenDomain) check(token []byte) []byte {
	sum := sha256.Sum256(append(d.use[:len(d.use):len(d.use)], token...))
	return sum[:checkBytes]
}

// Seal returns the token with a body.
func (d *TokenDomain) Seal(kind TokenKind, body []byte) string {
	b := append([]byte{byte(kind)}, body...)
	return d.in.String() + "-" + strict.EncodeToString(append(b, d.check(b)...))
}

// Open returns a token's kind and body; ok is false for a token that Seal did not return.
func (d *TokenDomain) Open(token string) (kind TokenKind, body []byte, ok bool) {
	of, text, ok := within(token)
	b, err := decodeToken(text)
	if !ok || of != d.in || err != nil || len(b) < 1+checkBytes {
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

// Refused is the error about a token in a field that the domain did not open, see the function
// Refused.
func (d *TokenDomain) Refused(field, token string, otherwise error) error {
	return Refused(field, token, d.in, otherwise)
}

// KindOf returns the kind that a token claims, even if the rest of it is damaged; 0 for a text that
// is not a token.
func KindOf(token string) TokenKind {
	_, text, _ := within(token)
	b, err := base64.RawURLEncoding.DecodeString(text[:min(len(text), 4)])
	if err != nil || len(b) == 0 {
		return 0
	}
	return TokenKind(b[0])
}

// StartAgain is the last part of an error about a page token: the remedy that always works.
const StartAgain = ", or omit pageToken to start again"
