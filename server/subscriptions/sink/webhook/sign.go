package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	keyPrefix = "whsec_"
	// Sizes of a key (Standard Webhooks 1.0.0, Signature scheme).
	minKeyBytes, maxKeyBytes = 24, 64
	// maxKeys is the new key and the one that it replaces.
	maxKeys = 2
)

// key is a signing secret.
type key []byte

// parseKeys reads a secret file. Its errors have nothing of the content.
func parseKeys(text []byte) ([]key, error) {
	var keys []key
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		encoded, ok := strings.CutPrefix(line, keyPrefix)
		k, err := base64.StdEncoding.DecodeString(encoded)
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d does not begin with %s", number, keyPrefix)
		case err != nil:
			return nil, fmt.Errorf("line %d is not base64 behind %s", number, keyPrefix)
		case len(k) < minKeyBytes || len(k) > maxKeyBytes:
			return nil, fmt.Errorf("line %d has a secret of %d bytes: use %d to %d", number, len(k), minKeyBytes, maxKeyBytes)
		case len(keys) == maxKeys:
			return nil, fmt.Errorf("line %d is one more than the %d secrets that a file may have", number, maxKeys)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("has no secret: write a line with " + keyPrefix + " and base64 of 32 random bytes")
	}
	return keys, nil
}

// signatures returns the value of webhook-signature: one signature for each key.
func signatures(keys []key, id, at string, body []byte) string {
	var out []byte
	for _, k := range keys {
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(body)
		if out != nil {
			out = append(out, ' ')
		}
		out = base64.StdEncoding.AppendEncode(append(out, "v1,"...), mac.Sum(nil))
	}
	return string(out)
}
