package bench

import (
	"runlog/bench/load"
	"runlog/bench/target"
)

// openConsume prepares consume: one consumer reads stored events, and acknowledges them. One that
// has read all begins again.
func openConsume(b *bed) (*work, error) {
	subscriber, ok := b.target.(target.Subscriber)
	if !ok {
		return nil, errNoSubscriptions
	}
	c := load.NewConsuming(b.session, b.target, subscriber, b.w.Stored)
	return &work{prepare: c.Prepare, release: c.Close, lanes: []load.Lane{load.Caller(c.Next).Lane()}}, nil
}
