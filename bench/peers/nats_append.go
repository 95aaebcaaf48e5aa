package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// An event is a message under the subject of its run, so that a run is read in order by its
// subject; runs are spread over streams by a hash of their id. Message ids are the idempotency
// keys, which name their run. The sequence of the stream rises within each run, with gaps.

// natsForm is a way to store many events of a run.
type natsForm struct {
	name  string
	store func(ctx context.Context, j *jetStream, runID string, messages []*nats.Msg) ([]published, error)
}

// published is what JetStream says about a message.
type published struct {
	seq       uint64
	duplicate bool
}

var (
	// asyncPublish sends all and waits for every acknowledgement; a batch is not atomic.
	asyncPublish = natsForm{"messages in flight, each acknowledged", storeAsync}
	// atomicPublish is one atomic batch; one that has a duplicate in it is refused and sent again
	// singly.
	atomicPublish = natsForm{"atomic batch publish", storeAtomic}
)

// Headers of atomic batches (ADR-50 of NATS), which the client library does not write by itself.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
	// containsDuplicate is the error code of a batch with a message id that is known.
	containsDuplicate = 10201
)

func subject(shard int, run string) string { return "runs." + strconv.Itoa(shard) + "." + run }

// shardOf a run.
func (j *jetStream) shardOf(runID string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID)) // never fails
	return int(h.Sum32() % uint32(j.shards))
}

// link is the connection of a run, so that its messages stay in order.
func (j *jetStream) link(runID string) int {
	h := fnv.New32()
	_, _ = h.Write([]byte(runID)) // never fails
	return int(h.Sum32() % uint32(len(j.conns)))
}

// Append stores the events of a request: all or none only with atomic batches.
func (j *jetStream) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	events, twins, err := parse(req)
	if err != nil {
		return nil, err
	}
	var messages []*nats.Msg
	var index []int
	for i := range events {
		if _, twin := twins[i]; twin {
			continue
		}
		body, err := proto.Marshal(req.Events[i])
		if err != nil {
			return nil, err
		}
		messages = append(messages, j.message(req.RunId, &events[i], body))
		index = append(index, i)
	}
	store := j.form.store
	if len(messages) == 1 {
		store = storeOne
	}
	acks, err := store(ctx, j, req.RunId, messages)
	if err != nil {
		return nil, natsError(err)
	}
	all := make([]stored, len(events))
	for n, i := range index {
		// JetStream says where a duplicate was stored, and nothing of what it was: a real adapter
		// would have to read it for the first event's id and time.
		all[i] = stored{eventID: events[i].EventID, seq: acks[n].seq, inserted: !acks[n].duplicate}
	}
	return answer(all, twins), nil
}

func (j *jetStream) message(runID string, e *contract.Event, body []byte) *nats.Msg {
	m := nats.NewMsg(subject(j.shardOf(runID), runID))
	m.Data = body
	m.Header.Set(nats.MsgIdHdr, e.IdempotencyKey)
	return m
}

func storeOne(ctx context.Context, j *jetStream, runID string, messages []*nats.Msg) ([]published, error) {
	ack, err := j.streams[j.link(runID)].PublishMsg(ctx, messages[0], jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, err
	}
	return []published{{ack.Sequence, ack.Duplicate}}, nil
}

func storeAsync(ctx context.Context, j *jetStream, runID string, messages []*nats.Msg) ([]published, error) {
	js := j.streams[j.link(runID)]
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		var err error
		if futures[i], err = js.PublishMsgAsync(m); err != nil {
			return nil, err
		}
	}
	acks := make([]published, len(messages))
	for i, f := range futures {
		select {
		case ack := <-f.Ok():
			acks[i] = published{ack.Sequence, ack.Duplicate}
		case err := <-f.Err():
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return acks, nil
}

func storeAtomic(ctx context.Context, j *jetStream, runID string, messages []*nats.Msg) ([]published, error) {
	conn, id := j.conns[j.link(runID)], nats.NewInbox()[len(nats.InboxPrefix):]
	last := len(messages) - 1
	for i, m := range messages {
		m.Header.Set(batchID, id)
		m.Header.Set(batchSequence, strconv.Itoa(i+1))
		if i < last {
			if err := conn.PublishMsg(m); err != nil {
				return nil, err
			}
		}
	}
	messages[last].Header.Set(batchCommit, "1")
	answer, err := conn.RequestMsgWithContext(ctx, messages[last])
	if err != nil {
		return nil, err
	}
	var ack struct {
		Sequence uint64              `json:"seq"`
		Count    int                 `json:"count"`
		Error    *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(answer.Data, &ack); {
	case err != nil:
		return nil, err
	case ack.Error != nil && ack.Error.ErrorCode == containsDuplicate:
		for _, m := range messages {
			m.Header.Del(batchID)
			m.Header.Del(batchSequence)
			m.Header.Del(batchCommit)
		}
		return storeAsync(ctx, j, runID, messages)
	case ack.Error != nil:
		return nil, ack.Error
	case ack.Count != len(messages):
		return nil, fmt.Errorf("%d messages of %d committed", ack.Count, len(messages))
	}
	acks := make([]published, len(messages))
	for i := range acks {
		acks[i].seq = ack.Sequence - uint64(last-i) // nothing else is stored between them
	}
	return acks, nil
}

// natsError gives an error its code to be counted by.
func natsError(err error) error {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return failed("NATS_"+strconv.Itoa(int(e.ErrorCode)), err)
	}
	return err
}
