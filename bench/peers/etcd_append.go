package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// What is stored in etcd, for each run:
//
//	e/<run>/<runSeq, 16 hexadecimal digits>   the events of one append, from that runSeq on
//	k/<run>/<idempotency key>                 receipt: runSeq (8), persistedAt (8), eventId (16)
//
// An append is one transaction: if none of its receipts is there, and no event of the next runSeq,
// then put both. The adapter remembers how far the runs are that it appends to; where it is wrong
// because another one has been faster, the transaction fails and tells, and it is tried again.

// etcdForm is a way to number the events of a run.
type etcdForm struct {
	name  string
	store func(ctx context.Context, e *etcd, req *runlogv1.AppendEventsRequest, events []contract.Event, twins map[int]int) ([]stored, error)
}

var (
	// counted numbers them 1, 2, 3, …, as above.
	counted = etcdForm{"runSeq counted for each run, one transaction an append", storeCounted}
	// revised takes etcd's revision, which rises over all runs, so that an event is one put: the
	// receipt is the event. The events of one append share their revision and are told apart by
	// their place in it.
	revised = etcdForm{"runSeq from etcd's revision, one transaction an append", storeRevised}
)

// revisionEvents is how many numbers a revision is stretched to, so that the events of an append
// have one each.
const revisionEvents = 1024

// tries bounds how often an append is tried whose run others append to at the same time.
const tries = 1000

// Append stores the events of a request in one transaction.
func (e *etcd) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	events, twins, err := parse(req)
	if err != nil {
		return nil, err
	}
	all, err := e.form.store(ctx, e, req, events, twins)
	if err != nil {
		return nil, err
	}
	return answer(all, twins), nil
}

func receiptKey(ev *contract.Event) string { return "k/" + ev.RunID + "/" + ev.IdempotencyKey }

// eventKey sorts by runSeq.
func eventKey(runID string, seq int64) string { return fmt.Sprintf("e/%s/%016x", runID, uint64(seq)) }

func receipt(id contract.EventID, seq int64, persisted time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(seq))
	b = binary.BigEndian.AppendUint64(b, uint64(persisted.UnixNano()))
	return string(append(b, id[:]...))
}

func parseReceipt(value []byte) (stored, error) {
	if len(value) < 32 {
		return stored{}, fmt.Errorf("receipt of %d bytes", len(value))
	}
	return stored{
		seq:       binary.BigEndian.Uint64(value),
		persisted: time.Unix(0, int64(binary.BigEndian.Uint64(value[8:]))),
		eventID:   contract.EventID(value[16:32]),
	}, nil
}

// storeCounted tries until no other caller has taken the run's next number.
func storeCounted(ctx context.Context, e *etcd, req *runlogv1.AppendEventsRequest, events []contract.Event, twins map[int]int) ([]stored, error) {
	all := make([]stored, len(events))
	known := make(map[int]bool) // events that are stored already
	for range tries {
		last, err := e.head(ctx, req.RunId)
		if err != nil {
			return nil, err
		}
		fresh := freshOf(events, twins, known)
		if len(fresh) == 0 {
			return all, nil
		}
		now := time.Now()
		txn, seqs, err := countedTxn(e.client.Txn(ctx), req, events, fresh, last, now)
		if err != nil {
			return nil, err
		}
		res, err := txn.Commit()
		if err != nil {
			return nil, err
		}
		if res.Succeeded {
			for n, i := range fresh {
				all[i] = stored{eventID: events[i].EventID, seq: uint64(seqs[n]), persisted: now, inserted: true}
			}
			e.setHead(req.RunId, seqs[len(seqs)-1])
			return all, nil
		}
		// Another caller was faster: learn which events are known, and how far the run is.
		for n, i := range fresh {
			if kvs := res.Responses[n].GetResponseRange().Kvs; len(kvs) > 0 {
				known[i] = true
				if all[i], err = parseReceipt(kvs[0].Value); err != nil {
					return nil, err
				}
			}
		}
		e.forget(req.RunId)
	}
	return nil, failed("CONTENTION", fmt.Errorf("the run was taken %d times", tries))
}

func freshOf(events []contract.Event, twins map[int]int, known map[int]bool) []int {
	var fresh []int
	for i := range events {
		if _, twin := twins[i]; !twin && !known[i] {
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// countedTxn puts the fresh events and their receipts behind the run's last number.
func countedTxn(txn clientv3.Txn, req *runlogv1.AppendEventsRequest, events []contract.Event, fresh []int, last int64, now time.Time) (clientv3.Txn, []int64, error) {
	record := &runlogv1.AppendEventsRequest{RunId: req.RunId}
	first := eventKey(req.RunId, last+1)
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(first), "=", 0)}
	var puts, gets []clientv3.Op
	var seqs []int64
	for n, i := range fresh {
		key, seq := receiptKey(&events[i]), last+1+int64(n)
		record.Events = append(record.Events, req.Events[i])
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		puts = append(puts, clientv3.OpPut(key, receipt(events[i].EventID, seq, now)))
		gets = append(gets, clientv3.OpGet(key))
		seqs = append(seqs, seq)
	}
	value, err := proto.Marshal(record)
	puts = append(puts, clientv3.OpPut(first, string(value)))
	return txn.If(compares...).Then(puts...).Else(gets...), seqs, err
}

// head of a run, from memory or from its last events.
func (e *etcd) head(ctx context.Context, runID string) (int64, error) {
	e.mu.Lock()
	last, known := e.heads[runID]
	e.mu.Unlock()
	if known {
		return last, nil
	}
	res, err := e.client.Get(ctx, "e/"+runID+"/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(res.Kvs) == 0 {
		return 0, err
	}
	var record runlogv1.AppendEventsRequest
	if err := proto.Unmarshal(res.Kvs[0].Value, &record); err != nil {
		return 0, err
	}
	var first int64
	key := res.Kvs[0].Key
	if _, err := fmt.Sscanf(string(key[len(key)-16:]), "%x", &first); err != nil {
		return 0, err
	}
	return first + int64(len(record.Events)) - 1, nil
}

func (e *etcd) setHead(runID string, last int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heads[runID] = max(e.heads[runID], last)
}

func (e *etcd) forget(runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.heads, runID)
}

// storeRevised puts each event under its key.
func storeRevised(ctx context.Context, e *etcd, req *runlogv1.AppendEventsRequest, events []contract.Event, twins map[int]int) ([]stored, error) {
	all := make([]stored, len(events))
	known := make(map[int]bool)
	for range tries {
		fresh := freshOf(events, twins, known)
		if len(fresh) == 0 {
			return all, nil
		}
		now := time.Now()
		var compares []clientv3.Cmp
		var puts, gets []clientv3.Op
		for n, i := range fresh {
			key := receiptKey(&events[i])
			body, err := proto.Marshal(req.Events[i])
			if err != nil {
				return nil, err
			}
			compares = append(compares, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
			// The number is completed by the revision when it is read.
			puts = append(puts, clientv3.OpPut(key, receipt(events[i].EventID, int64(n), now)+string(body)))
			gets = append(gets, clientv3.OpGet(key))
		}
		res, err := e.client.Txn(ctx).If(compares...).Then(puts...).Else(gets...).Commit()
		if err != nil {
			return nil, err
		}
		for n, i := range fresh {
			if res.Succeeded {
				all[i] = stored{eventID: events[i].EventID, seq: uint64(res.Header.Revision*revisionEvents) + uint64(n), persisted: now, inserted: true}
				continue
			}
			kvs := res.Responses[n].GetResponseRange().Kvs
			if len(kvs) == 0 {
				continue
			}
			known[i] = true
			if all[i], err = parseReceipt(kvs[0].Value); err != nil {
				return nil, err
			}
			all[i].seq += uint64(kvs[0].CreateRevision * revisionEvents)
		}
		if res.Succeeded {
			return all, nil
		}
	}
	return nil, failed("CONTENTION", fmt.Errorf("the run was taken %d times", tries))
}
