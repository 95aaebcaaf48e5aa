package watch

import (
	"encoding/binary"
	"strconv"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/storage"
)

// watchTokens makes and parses the resume tokens for watches of one run. The body of a token is
// the highest runSeq sent, a uvarint.
type watchTokens struct{ domain rpc.TokenDomain }

func newWatchTokens(in storage.Incarnation, runID string) watchTokens {
	return watchTokens{rpc.NewTokenDomain("watch of a run", in, runID)}
}

func (t *watchTokens) format(seq uint64) string {
	return t.domain.Seal(rpc.TokenWatch, binary.AppendUvarint(nil, seq))
}

func (t *watchTokens) parse(token string) (seq uint64, err error) {
	if body, ok := t.domain.OpenAs(rpc.TokenWatch, token); ok {
		if seq, n := binary.Uvarint(body); n > 0 && n == len(body) {
			return seq, nil
		}
	}
	return 0, t.domain.Refused("resumeToken", token, &contract.Error{Reason: contract.ReasonResumeTokenInvalid,
		Message: "the resume token does not belong to a watch of this run; read a new snapshot and watch from its lastEventSeq"})
}

// logPlace is the cursor of a watch of the events of many runs: a place in the commit order, and
// how many events of the commit behind it were sent.
type logPlace struct {
	cursor watch.Cursor
	sent   uint64
}

// logTokens makes and parses the resume tokens for watches of events with one filter. The body
// of a token is the place as three uvarints.
type logTokens struct{ domain rpc.TokenDomain }

func newLogTokens(in storage.Incarnation, f *run.Filter, types []string) logTokens {
	parts := append([]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID, f.PlanVersion, f.RunIDPrefix}, types...)
	return logTokens{rpc.NewTokenDomain("watch of events of runs", in, parts...)}
}

func (t *logTokens) format(at logPlace) string {
	b := binary.AppendUvarint(nil, uint64(at.cursor.Position))
	b = binary.AppendUvarint(b, at.cursor.Ahead)
	return t.domain.Seal(rpc.TokenRunsEvents, binary.AppendUvarint(b, at.sent))
}

func (t *logTokens) parse(token string) (at logPlace, ok bool) {
	body, ok := t.domain.OpenAs(rpc.TokenRunsEvents, token)
	var numbers [3]uint64
	for i := range numbers {
		n, w := binary.Uvarint(body)
		if !ok || w <= 0 {
			return logPlace{}, false
		}
		numbers[i], body = n, body[w:]
	}
	at.cursor = watch.Cursor{Position: storage.Position(numbers[0]), Ahead: numbers[1]}
	at.sent = numbers[2]
	return at, len(body) == 0
}

// runsPlace is the cursor of a watch of many runs: a position in the commit order. While the watch
// still lists the existing runs, it is also a place in that list.
type runsPlace struct {
	cursor  watch.Cursor
	listing []byte // nil: the list is complete
}

// runsTokens makes and parses the resume tokens for watches with one filter. The body of a token
// is the cursor as two uvarints, and the place in the list if there is one.
type runsTokens struct{ domain rpc.TokenDomain }

func newRunsTokens(in storage.Incarnation, f *run.Filter) runsTokens {
	return runsTokens{rpc.NewTokenDomain("watch of runs", in, f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID,
		f.PlanVersion, f.RunIDPrefix, strconv.Itoa(int(f.Statuses)))}
}

func (t *runsTokens) format(at runsPlace) string {
	b := binary.AppendUvarint(nil, uint64(at.cursor.Position))
	return t.domain.Seal(rpc.TokenRuns, append(binary.AppendUvarint(b, at.cursor.Ahead), at.listing...))
}

func (t *runsTokens) parse(token string) (at runsPlace, ok bool) {
	body, ok := t.domain.OpenAs(rpc.TokenRuns, token)
	if !ok {
		return at, false
	}
	position, n := binary.Uvarint(body)
	if n <= 0 {
		return at, false
	}
	ahead, m := binary.Uvarint(body[n:])
	if m <= 0 {
		return at, false
	}
	at.cursor = watch.Cursor{Position: storage.Position(position), Ahead: ahead}
	if rest := body[n+m:]; len(rest) > 0 {
		at.listing = rest
	}
	return at, true
}
