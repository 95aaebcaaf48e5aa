package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"runlog/bench/target"
)

var _ target.Subscriber = (*jetStream)(nil)

// consumers numbers the consumers of this process.
var consumers atomic.Uint64

const (
	// consumePending are the messages that a consumer has at a time: as many as with runlog.
	consumePending = 10_000
	// consumeBatch is about how many messages one Next returns at most.
	consumeBatch = 512
)

// natsConsumer is a durable consumer of every stream, with explicit acknowledgements.
type natsConsumer struct {
	name  string
	pulls []jetstream.MessagesContext
	got   chan jetstream.Msg
	done  chan struct{}
	read  sync.WaitGroup
	last  []jetstream.Msg // returned, and not acknowledged
	close func(context.Context) error
}

// Subscribe makes a durable consumer that begins with the first message.
func (j *jetStream) Subscribe(ctx context.Context) (target.Consumer, error) {
	c := &natsConsumer{name: fmt.Sprintf("bench-%d", consumers.Add(1)), got: make(chan jetstream.Msg, consumeBatch), done: make(chan struct{})}
	streams := make([]string, j.shards)
	for shard := range j.shards {
		streams[shard] = fmt.Sprintf("runs-%d", shard)
		js := j.streams[shard%len(j.streams)]
		durable, err := js.CreateConsumer(ctx, streams[shard], jetstream.ConsumerConfig{
			Durable: c.name, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: consumePending,
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		pull, err := durable.Messages(jetstream.PullMaxMessages(max(1, consumePending/j.shards)))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.pulls = append(c.pulls, pull)
		c.read.Go(func() { c.deliver(pull) })
	}
	c.close = func(ctx context.Context) (err error) {
		for _, stream := range streams {
			err = errors.Join(err, j.streams[0].DeleteConsumer(ctx, stream, c.name))
		}
		return err
	}
	return c, nil
}

func (c *natsConsumer) deliver(pull jetstream.MessagesContext) {
	for {
		m, err := pull.Next()
		if err != nil {
			return // it was stopped; Next ends with the bench
		}
		select {
		case c.got <- m:
		case <-c.done:
			return
		}
	}
}

// Next acknowledges what it has returned before, and waits for more.
func (c *natsConsumer) Next(ctx context.Context) (int, error) {
	for _, m := range c.last {
		if err := m.Ack(); err != nil {
			return 0, err
		}
	}
	c.last = c.last[:0]
	select {
	case m := <-c.got:
		c.last = append(c.last, m)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for len(c.last) < consumeBatch {
		select {
		case m := <-c.got:
			c.last = append(c.last, m)
		default:
			return len(c.last), nil
		}
	}
	return len(c.last), nil
}

// Close deletes the consumer.
func (c *natsConsumer) Close() error {
	close(c.done)
	for _, p := range c.pulls {
		p.Stop()
	}
	c.read.Wait()
	if c.close == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsEnd)
	defer cancel()
	return c.close(ctx)
}
