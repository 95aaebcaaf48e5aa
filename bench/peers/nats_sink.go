package main

import (
	"context"
	"errors"
	"path/filepath"

	"runlog/bench/target"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	runlogv1 "runlog/proto/runlog/v1"
)

// natsReceiver is a JetStream server with its default sync_interval: the sink is measured, and not
// how often the receiver syncs.
type natsReceiver struct {
	process *target.Process
	url     string
	conn    *nats.Conn
	js      jetstream.JetStream
}

func openNATSReceiver(ctx context.Context, dir string) (_ *natsReceiver, err error) {
	r := &natsReceiver{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	process, port, err := startChild(dir, natsCommand, natsSyncsSeldom, filepath.Join(dir, "data"))
	r.process, r.url = process, "nats://127.0.0.1:"+port
	if err != nil {
		return nil, err
	}
	if r.conn, err = dialNATS(ctx, r.process, r.url); err != nil {
		return nil, err
	}
	r.js, err = jetstream.New(r.conn)
	return r, err
}

// Open makes a stream on files.
func (r *natsReceiver) Open(ctx context.Context) (target.Inbox, error) {
	name := inboxName()
	s, err := r.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage, Replicas: 1,
	})
	if err != nil {
		return nil, err
	}
	return &natsInbox{receiver: r, stream: s, name: name}, nil
}

// Close ends the server.
func (r *natsReceiver) Close() error {
	if r.conn != nil {
		r.conn.Close()
	}
	if r.process == nil {
		return nil
	}
	return r.process.Stop()
}

// natsInbox is a stream.
type natsInbox struct {
	receiver *natsReceiver
	stream   jetstream.Stream
	name     string
}

// Delivery publishes each event under the subject of its run.
func (b *natsInbox) Delivery() *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Nats{Nats: &runlogv1.NatsDelivery{
		Url: b.receiver.url, Subject: b.name + ".{run}", Stream: b.name,
	}}}
}

// Received asks for the number of messages. A repeat, which has the message id of the first, is not
// stored.
func (b *natsInbox) Received(ctx context.Context) (int, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

// Close deletes the stream.
func (b *natsInbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), natsEnd)
	defer cancel()
	return b.receiver.js.DeleteStream(ctx, b.name)
}
