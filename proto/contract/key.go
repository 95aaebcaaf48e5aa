package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// runStep stands in the key of an event that has no stepId (IDM-2).
const runStep = "RUN"

// keyText is an idempotency key: 64 lower-case hexadecimal digits.
type keyText [2 * sha256.Size]byte

// DeriveKey returns the idempotency key of an event: lower-case hex of SHA-256 over its parts
// joined by single vertical bars (IDM-1 to IDM-4). The parts are, in this order,
//
//	2.x: runId | stepId, or RUN without one | logicalAttemptId | eventType | planId | planVersion
//	1.1: the same without planId
//	a type whose events are one for each try of the platform (IDM-11): the same | engineAttemptId
//
// They are taken as they are: no trimming, no case change, no Unicode normalisation; the attempts
// are base-10 ASCII. planID is ignored on line 1.1, engineAttempt for all other types.
func DeriveKey(line Line, runID, stepID string, logicalAttempt, engineAttempt uint32, eventType, planID, planVersion string) string {
	key := deriveKey(line, runID, stepID, logicalAttempt, engineAttempt, eventType, planID, planVersion)
	return string(key[:])
}

func deriveKey(line Line, runID, stepID string, logicalAttempt, engineAttempt uint32, eventType, planID, planVersion string) keyText {
	// Large enough for everyday names, so that nothing is allocated for them.
	var stack [512]byte
	b := append(stack[:0], runID...)
	b = append(b, '|')
	if stepID == "" {
		stepID = runStep
	}
	b = append(b, stepID...)
	b = append(b, '|')
	b = strconv.AppendUint(b, uint64(logicalAttempt), 10)
	b = append(b, '|')
	b = append(b, eventType...)
	b = append(b, '|')
	if line != Line11 {
		b = append(b, planID...)
		b = append(b, '|')
	}
	b = append(b, planVersion...)
	if OfOneTry(eventType) {
		b = append(b, '|')
		b = strconv.AppendUint(b, uint64(engineAttempt), 10)
	}

	sum := sha256.Sum256(b)
	var key keyText
	hex.Encode(key[:], sum[:])
	return key
}

// KeyHash returns SHA-256 of the key's text, derived or opaque: the fixed-size name under which
// receipts file the key.
func KeyHash(key string) [32]byte {
	// Keys are at most 128 bytes (IDM-5), so the copy stays on the stack.
	var stack [128]byte
	return sha256.Sum256(append(stack[:0], key...))
}
