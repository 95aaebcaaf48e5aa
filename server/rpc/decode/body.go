package decode

import (
	"errors"
	"io"
	"slices"

	"runlog/server/budget"
)

const (
	// bodyPiece is how many bytes of a body are drawn from the budget and read at a time.
	bodyPiece = 64 << 10
	// bodyForms is how often the content of a body is in memory while it is answered: its text, the
	// message, its encoded form, and the message of the service.
	bodyForms = 4
)

// Body reads the body of an HTTP request piece by piece. Each piece is drawn before it is read, and
// twice, because the text moves when it grows. The grant then has what the body takes until its
// answer. length is what the request announced; negative: nothing. Error: OVERLOADED as a
// *contract.Error, or that of the reader.
func (l Limits) Body(body io.Reader, length int64, isAppend bool, grant *budget.Grant) ([]byte, error) {
	var text []byte
	class, complete := budget.Shared, budget.Shared
	if isAppend {
		class, complete = budget.Arriving, budget.Append
	}
	for read := 0; ; {
		if read = len(text); read > budget.Uncounted || read == 0 && length > budget.Uncounted {
			if read > budget.SmallAppend || length > budget.SmallAppend {
				class, complete = budget.Shared, budget.Shared
			}
			if err := grant.Move(l.Memory, class, 2*int64(read+bodyPiece)); err != nil {
				return nil, err
			}
		}
		most := bodyPiece
		if read == 0 && length <= budget.Uncounted {
			most = budget.Uncounted + 1
		}
		text = slices.Grow(text, most)
		n, err := io.ReadFull(body, text[read:read+most])
		text = text[:read+n]
		cutShort := length >= 0 && int64(len(text)) < length
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n < most && !cutShort {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(text) <= budget.Uncounted {
		grant.Release()
		return text, nil
	}
	return text, grant.Move(l.Memory, complete, bodyForms*int64(len(text)))
}
