package queue

import (
	"encoding/binary"
	"fmt"

	recordv1 "runlog/proto/record/v1"
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

func number(dst []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(dst, n) }

// timerKey is the key of a timer. Stamps are after 1970, so that their unsigned order is their
// order.
func timerKey(due int64, order uint64) []byte {
	return number(number([]byte(timerTable), uint64(due)), order)
}

func exhaustedKey(order uint64) []byte { return number([]byte(exhaustedTable), order) }

func unsettledKey(runID string) []byte { return append([]byte(unsettledTable), runID...) }

func numbersKey() []byte { return []byte(numbersTable) }

// nameIn is the key of a name in a table, or the begin of the keys that a filter selects.
func nameIn(table string, n Name) []byte {
	key := []byte(table)
	for _, text := range n.texts() {
		if text == "" {
			break
		}
		key = append(append(key, text...), 0)
	}
	return key
}

// after is above every key with a prefix of a name. It ends with a table's letter or a zero byte.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	return end
}

// stateKey is the begin of the keys of a queue's runs in a state; of ready ones, of a priority.
func stateKey(queue uint64, state State, priority uint32) []byte {
	rank := byte(0)
	if state == Ready {
		rank = byte(MaxPriority - priority)
	}
	return append(number([]byte(orderTable), queue), byte(state), rank)
}

// orderKey is the key of a run among those of its queue.
func orderKey(m *recordv1.QueuedRun) []byte {
	return number(stateKey(m.Queue, State(m.State), m.Priority), m.Order)
}

func orderRow(m *recordv1.QueuedRun) []byte {
	return append(number(nil, uint64(m.EnqueuedAt)), m.RunId...)
}

// place is a row of the runs of queues.
type place struct {
	order      uint64
	enqueuedAt int64
	runID      string
}

func parsePlace(key, value []byte) (p place, err error) {
	if len(key) != len(orderTable)+8+2+8 || len(value) < 8 {
		return p, fmt.Errorf("%w: place of %d and %d bytes", errRow, len(key), len(value))
	}
	return place{
		order: binary.BigEndian.Uint64(key[len(key)-8:]), enqueuedAt: int64(binary.BigEndian.Uint64(value)), runID: string(value[8:]),
	}, nil
}

func parseTimer(key []byte) (due int64, err error) {
	if len(key) != len(timerTable)+16 {
		return 0, fmt.Errorf("%w: timer of %d bytes", errRow, len(key))
	}
	return int64(binary.BigEndian.Uint64(key[len(timerTable):])), nil
}

func parseNumber(row []byte) (uint64, error) {
	if len(row) != 8 {
		return 0, fmt.Errorf("%w: number of %d bytes", errRow, len(row))
	}
	return binary.BigEndian.Uint64(row), nil
}

func requestKey(key []byte) []byte { return append([]byte(keyTable), key...) }

func queueKey(n uint64) []byte { return number([]byte(queueTable), n) }

// countKey is the key of the number of queues of a tenant.
func countKey(tenant string) []byte { return append([]byte(countTable), tenant...) }

func runKey(runID string) []byte { return append([]byte(runTable), runID...) }
