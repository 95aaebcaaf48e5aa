package join

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A join token is TokenPrefix and 256 random bits in base64url, 43 characters. An API token has
// another prefix, so that neither is taken for the other.
const (
	TokenPrefix = "rlj_"
	tokenBytes  = 32
)

// NewToken returns a new token, which is shown once, and its hash.
func NewToken() (text string, hash [sha256.Size]byte) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // It never fails.
	text = TokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return text, sha256.Sum256([]byte(text))
}

// ParseToken returns the hash of a text that looks like a join token.
func ParseToken(text string) (hash [sha256.Size]byte, ok bool) {
	random, found := strings.CutPrefix(text, TokenPrefix)
	if !found || len(random) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return hash, false
	}
	return sha256.Sum256([]byte(text)), true
}
