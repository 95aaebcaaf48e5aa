package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"runlog/bench/target"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	kafkaCommand = "serve-kafka"
	// kafkaPartitions is the partitions of a topic.
	kafkaPartitions = 8
	kafkaEnd        = 10 * time.Second
	// kafkaOneReplica is the replication factor.
	kafkaOneReplica = 1
	// kafkaLatest asks for the end of a partition.
	kafkaLatest = -1
)

// serveKafka is the child process: one broker that implements Kafka's protocol and keeps records in
// memory (kfake). It is no real Kafka, whose cost it does not show.
func serveKafka(port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(n))
	if err != nil {
		return err
	}
	<-ctx.Done()
	c.Close()
	return nil
}

// kafkaReceiver is that process, and a client of it.
type kafkaReceiver struct {
	process *target.Process
	address string
	client  *kgo.Client
}

func openKafkaReceiver(ctx context.Context, dir string) (_ *kafkaReceiver, err error) {
	r := &kafkaReceiver{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	process, port, err := startChild(dir, kafkaCommand)
	r.process, r.address = process, "127.0.0.1:"+port
	if err != nil {
		return nil, err
	}
	if r.client, err = kgo.NewClient(kgo.SeedBrokers(r.address), kgo.DisableClientMetrics()); err != nil {
		return nil, err
	}
	return r, r.process.Wait(ctx, childStart, func() bool {
		ping, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return r.client.Ping(ping) == nil
	})
}

// Open makes a topic.
func (r *kafkaReceiver) Open(ctx context.Context) (target.Inbox, error) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = inboxName(), kafkaPartitions, kafkaOneReplica
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return nil, err
	}
	for i := range res.Topics {
		err = errors.Join(err, kerr.ErrorForCode(res.Topics[i].ErrorCode))
	}
	if err != nil {
		return nil, fmt.Errorf("make the topic %s: %w", t.Topic, err)
	}
	return &kafkaInbox{receiver: r, topic: t.Topic}, nil
}

// Close ends the broker.
func (r *kafkaReceiver) Close() error {
	if r.client != nil {
		r.client.Close()
	}
	if r.process == nil {
		return nil
	}
	return r.process.Stop()
}

// kafkaInbox is a topic.
type kafkaInbox struct {
	receiver *kafkaReceiver
	topic    string
}

// Delivery produces to the topic.
func (b *kafkaInbox) Delivery() *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Kafka{Kafka: &runlogv1.KafkaDelivery{
		Brokers: []string{b.receiver.address}, Topic: b.topic,
	}}}
}

// Received asks for the ends of the partitions.
func (b *kafkaInbox) Received(ctx context.Context) (int, error) {
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = b.topic
	for i := range int32(kafkaPartitions) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = i, kafkaLatest
		t.Partitions = append(t.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)
	res, err := req.RequestWith(ctx, b.receiver.client)
	if err != nil {
		return 0, err
	}
	sum := 0
	for i := range res.Topics {
		for _, p := range res.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, err
			}
			sum += int(p.Offset)
		}
	}
	return sum, nil
}

// Close deletes the topic, which frees its memory.
func (b *kafkaInbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), kafkaEnd)
	defer cancel()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(b.topic)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics, req.TopicNames = append(req.Topics, t), []string{b.topic}
	_, err := req.RequestWith(ctx, b.receiver.client)
	return err
}
