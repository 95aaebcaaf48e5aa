package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
)

// An API token is TokenPrefix and 256 random bits in base64url, 43 characters (SEC-2). The prefix
// lets scanners find a token that was committed or logged.
const (
	TokenPrefix = "rlk_"
	tokenBytes  = 32
)

// TokenHash is the SHA-256 of a token's text. Only it is stored.
type TokenHash [sha256.Size]byte

// NewToken returns a new token, which is shown once, and its hash.
func NewToken() (text string, hash TokenHash) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // It never fails.
	text = TokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return text, sha256.Sum256([]byte(text))
}

// ParseToken returns the hash of a text that looks like a token.
func ParseToken(text string) (hash TokenHash, ok bool) {
	random, found := strings.CutPrefix(text, TokenPrefix)
	if !found || len(random) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return hash, false
	}
	return sha256.Sum256([]byte(text)), true
}

// Token is what is stored of an API token.
type Token struct {
	ID      string
	Name    string
	Tenants Tenants
	Roles   Roles
	ActFor  []string
	Until   time.Time // zero: it does not expire
	Revoked bool
}

// identity returns the identity that presents the token.
func (t *Token) identity(hash TokenHash) *Identity {
	return &Identity{Name: TokenIdentity(t.Name), Tenants: t.Tenants, Roles: t.Roles, ActFor: t.ActFor, Until: t.Until, TokenID: t.ID, token: hash}
}
