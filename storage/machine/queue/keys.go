package queue

import (
	"encoding/binary"
	"fmt"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/table"
)

const (
	timerTable     = "E"
	countTable     = "F"
	leasableTable  = "G"
	exhaustedTable = "H"
	numbersTable   = "I"
	nameTable      = "N"
	orderTable     = "O"
	keyTable       = "P"
	queueTable     = "Q"
	runTable       = "R"
	drainTable     = "Yd"
	unsettledTable = "Yu"
)

func timerKey(due int64, order uint64) table.Key {
	return table.In(timerTable).Number(uint64(due)).Number(order)
}

func exhaustedKey(order uint64) table.Key { return table.In(exhaustedTable).Number(order) }

func unsettledKey(runID string) []byte { return []byte(unsettledTable + runID) }

func numbersKey() []byte { return []byte(numbersTable) }

// nameIn is the key of a name in a table, or the begin of the keys that a filter selects.
func nameIn(prefix string, n Name) table.Key {
	key := table.In(prefix)
	for _, text := range n.texts() {
		if text == "" {
			break
		}
		key = key.Text(text)
	}
	return key
}

// stateKey is the begin of the keys of a queue's runs in a state; of ready ones, of a priority.
func stateKey(queue uint64, state State, priority uint32) table.Key {
	rank := byte(0)
	if state == Ready {
		rank = byte(MaxPriority - priority)
	}
	return append(table.In(orderTable).Number(queue), byte(state), rank)
}

// orderKey is the key of a run among those of its queue.
func orderKey(m *recordv1.QueuedRun) table.Key {
	return stateKey(m.Queue, State(m.State), m.Priority).Number(m.Order)
}

func orderRow(m *recordv1.QueuedRun) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(m.EnqueuedAt)), m.RunId...)
}

// runRow is a row of the runs of queues.
type runRow struct {
	order      uint64
	enqueuedAt int64
	runID      string
}

func parseRunRow(key, value []byte) (r runRow, err error) {
	if len(key) != len(orderTable)+8+2+8 || len(value) < 8 {
		return r, fmt.Errorf("%w %q: run of a queue of %d and %d bytes", table.ErrRow, key, len(key), len(value))
	}
	return runRow{
		order:      binary.BigEndian.Uint64(key[len(key)-8:]),
		enqueuedAt: int64(binary.BigEndian.Uint64(value)),
		runID:      string(value[8:]),
	}, nil
}

func parseTimer(key []byte) (due int64, err error) {
	if len(key) != len(timerTable)+16 {
		return 0, fmt.Errorf("%w %q: timer of %d bytes", table.ErrRow, key, len(key))
	}
	return int64(binary.BigEndian.Uint64(key[len(timerTable):])), nil
}

func requestKey(key []byte) []byte { return append([]byte(keyTable), key...) }

func queueKey(n uint64) table.Key { return table.In(queueTable).Number(n) }

// countKey is the key of the number of queues of a tenant.
func countKey(tenant string) []byte { return []byte(countTable + tenant) }

func runKey(runID string) []byte { return []byte(runTable + runID) }
