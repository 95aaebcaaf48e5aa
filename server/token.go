package server

import (
	"encoding/base64"
	"encoding/binary"

	"runlog/proto/contract"
	"runlog/storage"
)

// Tokens are base64url of a kind and uvarints. A position will name one place a partition one day, so
// clients must not look inside.
const (
	tokenPosition = 1
	tokenWatch    = 2
	tokenPage     = 3
)

func formatToken(kind byte, numbers ...uint64) string {
	b := []byte{kind}
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads count numbers of a token of a kind.
func parseToken(token string, kind byte, count int) ([]uint64, bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) == 0 || b[0] != kind {
		return nil, false
	}
	b = b[1:]
	numbers := make([]uint64, 0, count)
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || len(numbers) == count {
			return nil, false
		}
		numbers, b = append(numbers, n), b[w:]
	}
	return numbers, len(numbers) == count
}

func formatPosition(p storage.Position) string { return formatToken(tokenPosition, uint64(p)) }

func parsePosition(field, token string) (storage.Position, error) {
	n, ok := parseToken(token, tokenPosition, 1)
	if !ok {
		return 0, invalid(field, "is not a position of this API; pass one on as you got it")
	}
	return storage.Position(n[0]), nil
}

func formatWatchToken(seq uint64) string { return formatToken(tokenWatch, seq) }

func parseWatchToken(token string) (uint64, error) {
	n, ok := parseToken(token, tokenWatch, 1)
	if !ok {
		return 0, &contract.Error{Reason: contract.ReasonResumeTokenInvalid,
			Message: "the resume token is not one of a watch; read a fresh snapshot and watch from its lastEventSeq"}
	}
	return n[0], nil
}
