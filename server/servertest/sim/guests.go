package sim

import (
	"context"
	"fmt"
	"time"

	"runlog/server/rpc"
)

// Hosts of clients that do not have every right.
const (
	// stranger may see one tenant.
	stranger = "stranger"
	// leaver has tokens that are revoked.
	leaver = "leaver"
	// forger has the token of a producer.
	forger = "forger"
	// attester has the tokens of several identities.
	attester = "attester"
)

// bare are the hosts whose connections carry no credentials: their clients have tokens of their
// own.
var bare = []string{leaver, forger, attester}

// guests starts the clients that must not get what they ask for, until ctx ends. The caller must
// call wait.
func (w *world) guests(ctx, forming context.Context) (wait func(), err error) {
	if w.foreign, err = w.operator.token(forming, "tenant-0"); err != nil {
		return nil, err
	}
	var all []func()
	start := []func() (func(), error){
		func() (func(), error) { return w.clients.Stranger(ctx, stranger, 0) },
		func() (func(), error) {
			return w.clients.Leaver(ctx, leaver, "operator", rpc.CheckStreamEvery+time.Second)
		},
		func() (func(), error) { return w.impersonate(ctx) },
	}
	if !w.opts.Cross { // Its history must be small.
		start = append(start, func() (func(), error) { return w.clients.Hog(ctx, "hog") },
			func() (func(), error) { return w.clients.Starters(ctx, "starter") },
			func() (func(), error) { return w.clients.Forger(ctx, forger, "operator") },
			func() (func(), error) { return w.clients.Attesters(ctx, attester, "operator") })
	}
	if w.opts.Bus && !w.opts.Cross {
		start = append(start, func() (func(), error) { return w.clients.Bus(ctx, "subscriber") })
	}
	for _, start := range start {
		wait, err := start()
		if err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		all = append(all, wait)
	}
	return func() {
		for _, wait := range all {
			wait()
		}
	}, nil
}
