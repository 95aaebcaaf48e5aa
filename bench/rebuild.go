package bench

import (
	"context"
	"time"
)

// RebuildResult is how fast the projection was made anew.
type RebuildResult struct {
	Events uint64 `json:"events"`
	Runs   int    `json:"runs"`
	// Seconds of the whole rebuild, and of its first part, which folds the log. What follows
	// compares all snapshots with those that are served, and puts the new ones in their place.
	Seconds     float64 `json:"seconds"`
	FoldSeconds float64 `json:"foldSeconds"`
	// EventsPerSecond and FoldEventsPerSecond are the events divided by them.
	EventsPerSecond     float64 `json:"eventsPerSecond"`
	FoldEventsPerSecond float64 `json:"foldEventsPerSecond"`
	// Differing snapshots are wrong before or after.
	Differing int `json:"differing"`
}

// openRebuild prepares rebuild: each request appends a run from its beginning to its end.
func openRebuild(b *bed) (*work, error) {
	if _, ok := b.target.(Operator); !ok {
		return nil, errNoAdmin
	}
	w := newWork(b, sourcesOf(b, func(i int) *histories { return newWholeRuns(b.session, b.w.Batch, i) }))
	w.measure = measureRebuild
	return w, nil
}

// measureRebuild appends what is to be folded, waits until the node has nothing else to do, and has
// it rebuild its projection. The result is that of the appends.
func measureRebuild(ctx context.Context, o *Options, b *bed, w *work) (*Result, error) {
	operator := b.target.(Operator)
	l := &loop{calls: uint64(b.w.Stored+b.w.Batch-1) / uint64(b.w.Batch), duration: maxFilling, grace: o.Grace}
	res, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	if _, err := folded(ctx, operator, o.Grace); err != nil {
		return nil, err
	}
	var last RebuildState
	var fold time.Duration
	began := time.Now()
	err = operator.RebuildProjection(ctx, func(s RebuildState) {
		if last = s; s.Phase == rebuildFolds {
			fold = time.Since(began) // the last line of the phase says that all is folded
		}
	})
	taken := time.Since(began)
	if err != nil {
		return nil, err
	}
	res.Rebuild = &RebuildResult{
		Events: res.Acknowledged, Runs: last.Compared, Seconds: taken.Seconds(), FoldSeconds: fold.Seconds(),
		EventsPerSecond: perSecond(res.Acknowledged, taken.Seconds()), FoldEventsPerSecond: perSecond(res.Acknowledged, fold.Seconds()),
		Differing: last.Differing,
	}
	if last.Differing > 0 {
		err := wrongAnswer("DIFFERING", "%d snapshots are not the fold of their runs", last.Differing)
		res.addErrors(map[string]uint64{reasonOf(err): uint64(last.Differing)}, err)
	}
	return res, nil
}

// maxFilling is far more than the events take: their number ends it.
const maxFilling = time.Hour
