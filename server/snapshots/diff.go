package snapshots

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// maxDiffPage is the maximum, and the default, of entries in a page.
const maxDiffPage = 10_000

// DiffRun returns a page of what differs between two moments of a run (TR-7). Each page folds the
// run again up to the later moment, and never further.
func (s *Service) DiffRun(ctx context.Context, req *runlogv1.DiffRunRequest) (_ *runlogv1.DiffRunResponse, err error) {
	size, err := rpc.PageSize(req.PageSize, maxDiffPage, maxDiffPage)
	if err != nil {
		return nil, err
	}
	if err := s.node.Readable(ctx, req.RunId, req.Consistency); err != nil {
		return nil, err
	}
	tokens := rpc.NewTokenDomain("what differs in a run", s.node.Store().Incarnation(), req.RunId, req.From, req.To)
	token, err := parseDiffToken(&tokens, req.PageToken)
	if err != nil {
		return nil, err
	}
	from, to, err := s.moments(ctx, req)
	if err != nil {
		return nil, err
	}
	v, err := s.node.Open(ctx, req.RunId, token.to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if req.PageToken != "" {
		from.At, to.At = projector.AsOfSeq(token.from), projector.AsOfSeq(token.to)
	} else if err := between(&from, &to, v.Run); err != nil {
		return nil, err
	}
	var last *storage.Record
	before, err := run.FoldUntil(ctx, v.View, run.Empty(v.Run), func(r *storage.Record) bool {
		if from.At.Past(r) {
			return true
		}
		last = r
		return false
	})
	if err != nil {
		return nil, err
	}
	if last != nil && to.At.Past(last) {
		return nil, backwards()
	}
	after, err := run.FoldUntil(ctx, v.View, before, to.At.Past)
	if err != nil {
		return nil, err
	}
	if digest := after.Digest(); req.PageToken != "" && [8]byte(digest[:8]) != token.digest {
		return nil, rpc.Invalid("pageToken", fmt.Sprintf("is of the snapshot at runSeq %d, which the events of the run no longer give%s", token.to, rpc.StartAgain))
	}
	page, more := wire.Diff(before, after, wire.PageOfDiff{Skip: token.skip, Entries: size, Bytes: wire.FirstPage(0).Bytes})
	page.Applied = rpc.Applied(v.At)
	if more {
		next := diffToken{from: before.LastEventSeq, to: after.LastEventSeq, skip: token.skip + entriesOf(page)}
		digest := after.Digest()
		copy(next.digest[:], digest[:])
		page.NextPageToken = tokens.Seal(rpc.TokenDiff, next.append(nil))
	}
	return page, nil
}

// moments returns the moments of a request, once the node has everything up to them.
func (s *Service) moments(ctx context.Context, req *runlogv1.DiffRunRequest) (from, to rpc.Moment, err error) {
	in := s.node.Store().Incarnation()
	if from, err = rpc.ParseMoment("from", req.From, in); err != nil {
		return from, to, err
	}
	if from.Kind == rpc.MomentNow {
		from.At = projector.AsOfSeq(0)
	}
	if to, err = rpc.ParseMoment("to", req.To, in); err != nil {
		return from, to, err
	}
	for _, m := range []*rpc.Moment{&from, &to} {
		if err := m.Reach(ctx, closer{s.node, req.RunId, 0}, req.Consistency, s.opts.Clock); err != nil {
			return from, to, err
		}
	}
	return from, to, nil
}

// between checks the moments of a request against each other and against the run. Before the run
// was created it was as it is before its first event.
func between(from, to *rpc.Moment, r *storage.Run) error {
	if _, err := from.In(r); err != nil {
		return err
	}
	if err := exists(to, r); err != nil {
		return err
	}
	if from.Kind == to.Kind && (from.At.Seq > to.At.Seq || from.At.Time > to.At.Time || from.At.Position > to.At.Position) {
		return backwards()
	}
	return nil
}

func backwards() *contract.Error { return rpc.Invalid("to", "is before from: exchange them") }

// diffToken is the token of a page. Its body is digest:8, and from, to and skip as uvarints.
type diffToken struct {
	from, to uint64  // the last runSeq of each moment
	digest   [8]byte // the begin of that of the later snapshot
	skip     int
}

func (t *diffToken) append(b []byte) []byte {
	b = append(b, t.digest[:]...)
	for _, n := range [...]uint64{t.from, t.to, uint64(t.skip)} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func parseDiffToken(tokens *rpc.TokenDomain, text string) (t diffToken, err error) {
	if text == "" {
		return t, nil
	}
	body, ok := tokens.OpenAs(rpc.TokenDiff, text)
	if !ok || len(body) < len(t.digest) {
		return t, tokens.Refused("pageToken", text, rpc.Invalid("pageToken",
			"was changed, or belongs to another run or other moments: pass on nextPageToken as you got it"+rpc.StartAgain))
	}
	body = body[copy(t.digest[:], body):]
	var skip uint64
	for _, n := range [...]*uint64{&t.from, &t.to, &skip} {
		var size int
		*n, size = binary.Uvarint(body)
		body = body[max(size, 0):]
	}
	t.skip = int(skip)
	return t, nil
}

func entriesOf(m *runlogv1.DiffRunResponse) int {
	return len(m.Steps) + len(m.Attempts) + len(m.Artifacts) + len(m.Signals) + len(m.PendingSignals) + len(m.SettledSignals) + len(m.Inconsistencies)
}
