package queue

import (
	"encoding/binary"
	"fmt"
	"time"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Drain is a pause whose drain timeout is awaited (PRJ-9). It has a row from its RunPaused until
// EndDrains, also if the pause has ended meanwhile.
type Drain struct {
	RunID    string
	PausedAt int64
	Queue    uint64        // the number of the run's queue; 0: it is in none
	Timeout  time.Duration // as of the read
}

// drainKey is the key of a pause. Those of one queue, which have one timeout, are in the order of
// their stamps.
func drainKey(queue uint64, pausedAt int64, runID string) []byte {
	return append(table.In(drainTable).Number(queue).Number(uint64(pausedAt)), runID...)
}

func parseDrain(key []byte) (d Drain, err error) {
	if len(key) <= len(drainTable)+16 {
		return d, fmt.Errorf("%w %q: pause of %d bytes", table.ErrRow, key, len(key))
	}
	key = key[len(drainTable):]
	return Drain{Queue: binary.BigEndian.Uint64(key), PausedAt: int64(binary.BigEndian.Uint64(key[8:])), RunID: string(key[16:])}, nil
}

// draining takes note of a RunPaused with draining. q is nil for a run in no queue.
func (w *work) draining(runID string, q *queueState) {
	n := uint64(0)
	if q != nil {
		n = q.Number
	}
	w.tx.Set(drainKey(n, w.tx.Stamp(), runID), []byte{1}) // not nil, as of a row that was deleted
}

// EndDrains is the operation that handles the timeouts of at most MaxDrains pauses. raised[i] says
// that pause i still drains. It is never refused. Its reply is for DecodeEndDrains.
func EndDrains(list []Drain, raised []bool) (storage.Operation, error) {
	if len(list) > MaxDrains || len(list) != len(raised) {
		return storage.Operation{}, fmt.Errorf("queue: encode operation: %d pauses, %d of them judged", len(list), len(raised))
	}
	m := &recordv1.EndDrains{}
	for i, d := range list {
		m.Pauses = append(m.Pauses, &recordv1.EndDrains_Pause{Queue: d.Queue, PausedAt: d.PausedAt, RunId: d.RunID, Raised: raised[i]})
	}
	return operation(&recordv1.QueueOperation{Kind: &recordv1.QueueOperation_EndDrains{EndDrains: m}})
}

// DecodeEndDrains decodes the reply of EndDrains: the indexes of the pauses for which it has raised
// PAUSE_DRAIN_TIMEOUT. Those that another EndDrains has handled are not among them.
func DecodeEndDrains(reply []byte) ([]uint32, error) {
	var m recordv1.EndDrainsReply
	err := storage.DecodeReply(reply, &m)
	return m.Raised, err
}

func (w *work) endDrains(m *recordv1.EndDrains) (*recordv1.EndDrainsReply, error) {
	reply := &recordv1.EndDrainsReply{}
	if err := w.count(); err != nil {
		return nil, err
	}
	for i, p := range m.Pauses {
		key := drainKey(p.Queue, p.PausedAt, p.RunId)
		row, err := w.r.Get(key)
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		w.tx.Delete(key)
		if p.Raised {
			if err := w.tx.Tell(p.RunId); err != nil { // Its substatus ends without an event.
				return nil, err
			}
			reply.Raised = append(reply.Raised, uint32(i))
			w.numbers.DrainTimeouts++
			w.numbersChanged = true
		}
	}
	return reply, nil
}

// ListDrains returns at most n pauses whose drain timeout has ended at a time. standard is the
// timeout of runs in no queue, and of queues that have none of their own. It reads what it returns,
// and two rows of each queue that has pauses, however many these are.
func ListDrains(s *storage.Store, at int64, standard time.Duration, n int) ([]Drain, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) ([]Drain, error) { return drains(r, at, standard, n) })
}

func drains(r table.Reader, at int64, standard time.Duration, n int) (list []Drain, err error) {
	from, end := table.In(drainTable), table.In(drainTable).After()
	for more := true; more && len(list) < n; {
		more = false
		queue, timeout := uint64(0), time.Duration(-1) // of the first row
		for row, err := range r.Scan(from, end) {
			if err != nil {
				return nil, err
			}
			d, err := parseDrain(row.Key)
			if err != nil {
				return nil, err
			}
			if timeout < 0 || d.Queue != queue {
				queue = d.Queue
				if timeout, err = drainTimeout(r, queue, standard); err != nil {
					return nil, err
				}
			}
			if later(d.PausedAt, timeout) > at { // So do those behind it.
				from, more = table.In(drainTable).Number(queue+1), true
				break
			}
			d.Timeout = timeout
			if list = append(list, d); len(list) == n {
				break
			}
		}
	}
	return list, nil
}

// drainTimeout returns the drain timeout of a queue.
func drainTimeout(r table.Reader, queue uint64, standard time.Duration) (time.Duration, error) {
	if queue == 0 {
		return standard, nil
	}
	q, err := queueByNumber(r, queue)
	if own := time.Duration(q.GetSettings().GetDrainTimeout()); own > 0 {
		return own, err
	}
	return standard, err
}

// DrainTimeout returns how long a pause of a run may drain (PRJ-9), as ListDrains does.
func DrainTimeout(s *storage.Store, runID string, standard time.Duration) (time.Duration, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (time.Duration, error) {
		m, err := queuedRun(r, runID)
		if err != nil {
			return 0, err
		}
		return drainTimeout(r, m.GetQueue(), standard)
	})
}

// DrainTimeouts returns how often PAUSE_DRAIN_TIMEOUT was raised.
func DrainTimeouts(s *storage.Store) (uint64, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (uint64, error) {
		m, err := readNumbers(r)
		return m.GetDrainTimeouts(), err
	})
}
