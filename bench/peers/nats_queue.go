package main

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"runlog/bench/target"
)

var _ target.Queuer = (*jetStream)(nil)

const (
	queueStream  = "queue"
	queueSubject = "queue.runs"
	// queuePending bounds the runs that are taken and not started.
	queuePending = 10_000
)

// natsQueue is a work queue of JetStream: a message for each run, deduplicated by its run id within
// the window of the streams, which one consumer takes and removes by its acknowledgement.
type natsQueue struct {
	j    *jetStream
	runs chan jetstream.Msg
	pull []jetstream.MessagesContext
	done chan struct{}
	read sync.WaitGroup
}

// OpenQueue makes the stream, and a consumer that every connection pulls from.
func (j *jetStream) OpenQueue(ctx context.Context, workers int) (target.Queue, error) {
	_, err := j.streams[0].CreateStream(ctx, jetstream.StreamConfig{
		Name: queueStream, Subjects: []string{queueSubject}, Storage: jetstream.FileStorage, Replicas: 1,
		Retention: jetstream.WorkQueuePolicy, Duplicates: natsWindow,
	})
	if err != nil {
		return nil, err
	}
	q := &natsQueue{j: j, runs: make(chan jetstream.Msg), done: make(chan struct{})}
	for _, js := range j.streams {
		c, err := js.CreateOrUpdateConsumer(ctx, queueStream, jetstream.ConsumerConfig{
			Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: queuePending,
		})
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		pull, err := c.Messages(jetstream.PullMaxMessages(max(1, workers/len(j.streams))))
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		q.pull = append(q.pull, pull)
		q.read.Go(func() { q.deliver(pull) })
	}
	return q, nil
}

// deliver passes messages to the workers.
func (q *natsQueue) deliver(pull jetstream.MessagesContext) {
	for {
		m, err := pull.Next()
		if err != nil {
			return // it was stopped; a worker that waits ends with the bench
		}
		select {
		case q.runs <- m:
		case <-q.done:
			return
		}
	}
}

// Request publishes a message.
func (q *natsQueue) Request(ctx context.Context, runID string) error {
	m := nats.NewMsg(queueSubject)
	m.Data = []byte(runID)
	m.Header.Set(nats.MsgIdHdr, runID)
	_, err := q.j.streams[q.j.link(runID)].PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	return err
}

// Take waits for a message.
func (q *natsQueue) Take(ctx context.Context) (target.Job, error) {
	select {
	case m := <-q.runs:
		return &natsJob{q.j, m}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops to pull.
func (q *natsQueue) Close() error {
	close(q.done)
	for _, p := range q.pull {
		p.Stop()
	}
	q.read.Wait()
	return nil
}

// natsJob is a message that is not acknowledged yet.
type natsJob struct {
	j *jetStream
	m jetstream.Msg
}

// RunID names the run.
func (n *natsJob) RunID() string { return string(n.m.Data()) }

// Started publishes RunStarted, and removes the message from the queue.
func (n *natsJob) Started(ctx context.Context) error {
	if err := startOf(ctx, n.j, n.RunID()); err != nil {
		return err
	}
	return n.m.DoubleAck(ctx)
}
