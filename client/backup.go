package client

import (
	"context"
	"iter"

	runlogv1 "runlog/proto/runlog/v1"
)

// Backup yields a node's backup stream up to its manifest: a backup without a manifest as its last
// message is incomplete. Backup retries only before the first message. Options.Timeout bounds the
// silence between two messages. An error ends the iteration.
func (c *Client) Backup(ctx context.Context, req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
	return func(yield func(*runlogv1.BackupResponse, error) bool) {
		tries := retrier{client: c, patience: c.opts.Timeout, token: c.opts.token()}
		begun, more := false, true
		take := func(res *runlogv1.BackupResponse) bool {
			begun = true
			tries.answered()
			more = yield(res, nil)
			return more
		}
		for {
			failure := receive(ctx, c.opts.Timeout, bind(c.cluster.Backup, req), take)
			if failure == nil || !more {
				return
			}
			if begun {
				yield(nil, failure)
				return
			}
			if err := tries.again(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
