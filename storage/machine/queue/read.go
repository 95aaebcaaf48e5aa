package queue

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Queue is a queue with its settings and counts (QUE-10).
type Queue struct {
	Number    uint64
	Name      Name
	Settings  Settings
	CreatedAt int64
	// Ready, Delayed, Leased, Running and Exhausted count the runs by their state; ReadyBy counts
	// the ready ones by their priority.
	Ready, Delayed, Leased, Running, Exhausted uint64
	ReadyBy                                    [MaxPriority + 1]uint64
	// OldestAt is when the oldest ready run was requested; 0: none is ready.
	OldestAt int64
	// Requests, Starts and Ends are what was ever requested, started and ended. Rates are their
	// differences.
	Requests, Starts, Ends uint64
}

// Depth is how many runs wait.
func (q *Queue) Depth() uint64 { return q.Ready + q.Delayed }

// Leasable is how many runs may be leased at once.
func (q *Queue) Leasable() uint64 {
	s := &q.Settings
	switch busy := q.Leased + q.Running; {
	case s.Paused:
		return 0
	case s.MaxRunning == 0:
		return q.Ready
	case busy >= s.MaxRunning:
		return 0
	default:
		return min(q.Ready, s.MaxRunning-busy)
	}
}

// Written is what an entry has changed of what calls and timers wait for.
type Written struct {
	// Queues that have changed, as they are now.
	Queues []*Queue
	// Timer is the earliest one that was set; 0: none was.
	Timer int64
	// Exhausted: a run has come to that state. Unsettled: one waits for a Settle.
	Exhausted, Unsettled bool
}

// DecodeWritten decodes the rows of which storage.Store.WatchRows tells. Those of queues it decodes
// only if queues asks for them.
func DecodeWritten(rows []table.Row, queues bool) (w Written, err error) {
	for i := range rows {
		key, value := rows[i].Key, rows[i].Value
		if value == nil {
			continue
		}
		switch key[0] {
		case queueTable[0]:
			if !queues {
				continue
			}
			m, err := table.Decode[recordv1.Queue](rows[i])
			if err != nil {
				return w, err
			}
			w.Queues = append(w.Queues, decodeQueue(m))
		case timerTable[0]:
			due, err := parseTimer(key)
			if err != nil {
				return w, err
			}
			if w.Timer == 0 { // Rows are in the order of their keys.
				w.Timer = due
			}
		case exhaustedTable[0]:
			w.Exhausted = true
		case unsettledTable[0]:
			w.Unsettled = true
		}
	}
	return w, nil
}

// Run is a run from its request to its end.
type Run struct {
	RunID         string
	Queue         Name
	State         State
	Priority      uint32
	Order         uint64 // the number of the request among all
	EnqueuedAt    int64
	NotBefore     int64 // of Delayed
	StartAttempts uint32
	Fence         uint64
	Worker        string // of Leased and Running
	ExpiresAt     int64  // of a lease that was not released: of Leased, and of Running
	Cancelling    bool   // it has accepted a CANCEL or an EMERGENCY_STOP
	Unsettled     bool   // it may have ended, and waits for a Settle
	Released      bool   // a lease was released as Started, perhaps before the run was put back
	RequestKey    [32]byte
}

// LastAttempt tells whether a lease of the run that fails now is its last. One that has accepted a
// CANCEL ends by it.
func (r *Run) LastAttempt(s *Settings) bool {
	return r.StartAttempts >= s.MaxStartAttempts && !r.Cancelling
}

// Find returns a queue; nil: there is none by that name.
func Find(s *storage.Store, name Name) (*Queue, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Queue, error) {
		n, err := numberOf(r, name)
		if err != nil || n == 0 {
			return nil, err
		}
		return readQueue(r, n)
	})
}

// readQueue returns a queue that exists.
func readQueue(r table.Reader, n uint64) (*Queue, error) {
	m, err := queueByNumber(r, n)
	if err != nil {
		return nil, err
	}
	return decodeQueue(m), nil
}

// List returns at most n queues whose names begin as within, in the order of their names: those
// after a name, or from the first on if it is zero. more: there are others behind them.
func List(s *storage.Store, within, behind Name, n int) (list []*Queue, more bool, err error) {
	list, err = storage.ReadTables(s, Kind, func(r table.Reader) (list []*Queue, err error) {
		list, more, err = table.Page(r, nameIn(nameTable, within), nameIn(nameTable, behind), n, func(row table.Row) (*Queue, error) {
			n, err := table.DecodeNumber(row)
			if err != nil {
				return nil, err
			}
			return readQueue(r, n)
		})
		return list, err
	})
	return list, more, err
}

// ReadRun returns a run and its queue; nil: it was never requested, or its request has ended.
func ReadRun(s *storage.Store, runID string) (run *Run, q *Queue, err error) {
	run, err = storage.ReadTables(s, Kind, func(r table.Reader) (*Run, error) {
		m, err := queuedRun(r, runID)
		if err != nil || m == nil {
			return nil, err
		}
		row, err := queueByNumber(r, m.Queue)
		if err != nil {
			return nil, err
		}
		q = decodeQueue(row)
		return decodeRun(m, row), nil
	})
	return run, q, err
}

// ByKey returns the runId of a request; empty: there is none with this key.
func ByKey(s *storage.Store, key [32]byte) (string, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (string, error) {
		m, err := table.Get[recordv1.RunRequest](r, requestKey(key[:]))
		return m.GetRunId(), err
	})
}

// NextTimer returns when the next timer is due; false: there is none.
func NextTimer(s *storage.Store) (due int64, ok bool, err error) {
	due, err = storage.ReadTables(s, Kind, func(r table.Reader) (due int64, err error) {
		n, err := readNumbers(r)
		if err != nil {
			return 0, err
		}
		for row, err := range r.Scan(timerKey(n.TimersFrom, 0), nil) {
			if err != nil {
				return 0, err
			}
			due, err = parseTimer(row.Key)
			ok = err == nil
			return due, err
		}
		return 0, nil
	})
	return due, ok, err
}

// HasLeasable tells whether a Lease within the queues whose names begin so would find a run, timers
// that are due aside.
func HasLeasable(s *storage.Store, within Name) (bool, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (bool, error) {
		from := nameIn(leasableTable, within)
		if within.Queue != "" {
			row, err := r.Get(from)
			return row != nil, err
		}
		for _, err := range r.Scan(from, from.After()) {
			return err == nil, err
		}
		return false, nil
	})
}

// ListExhausted returns at most n runs in the state Exhausted, in commit order: first those behind
// an order.
func ListExhausted(s *storage.Store, behind uint64, n int) ([]*Run, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []*Run, err error) {
		for row, err := range inTurn(r, exhaustedTable, exhaustedKey(behind)) {
			if err != nil || len(list) == n {
				return list, err
			}
			m, err := queuedRun(r, string(row.Value))
			if err == nil && m == nil {
				err = fmt.Errorf("%w: run %q is exhausted and in no queue", table.ErrRow, row.Value)
			}
			if err != nil {
				return nil, err
			}
			q, err := queueByNumber(r, m.Queue)
			if err != nil {
				return nil, err
			}
			list = append(list, decodeRun(m, q))
		}
		return list, nil
	})
}

// ListUnsettled returns the ids of at most n runs that wait for a Settle: first those behind one.
func ListUnsettled(s *storage.Store, behind string, n int) ([]string, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []string, err error) {
		for row, err := range inTurn(r, unsettledTable, unsettledKey(behind)) {
			if err != nil || len(list) == n {
				return list, err
			}
			list = append(list, string(row.Key[len(unsettledTable):]))
		}
		return list, nil
	})
}

// inTurn yields the rows of a table behind a key, and then those up to it: rows that stay hold up
// no others if each read begins behind the one before.
func inTurn(r table.Reader, prefix string, behind []byte) iter.Seq2[table.Row, error] {
	next := slices.Concat(behind, []byte{0})
	return func(yield func(table.Row, error) bool) {
		for _, part := range [2][2][]byte{{next, nil}, {[]byte(prefix), next}} {
			for row, err := range r.Scan(part[0], part[1]) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

func numberOf(r table.Reader, name Name) (uint64, error) {
	return table.GetNumber(r, nameIn(nameTable, name))
}

func queueByNumber(r table.Reader, n uint64) (*recordv1.Queue, error) {
	m, err := table.Get[recordv1.Queue](r, queueKey(n))
	if err == nil && m == nil {
		err = fmt.Errorf("%w: there is no queue %d", table.ErrRow, n)
	}
	return m, err
}

func queuedRun(r table.Reader, runID string) (*recordv1.QueuedRun, error) {
	m, err := table.Get[recordv1.QueuedRun](r, runKey(runID))
	if m.GetPriority() > MaxPriority {
		err = fmt.Errorf("%w: run %q has priority %d", table.ErrRow, runID, m.Priority)
	}
	return m, err
}

// runAt returns the first ready run of a priority.
func runAt(r table.Reader, q *recordv1.Queue, priority uint32) (*recordv1.QueuedRun, error) {
	row, err := r.Get(stateKey(q.Number, Ready, priority).Number(q.Lines[priority].Order))
	if err != nil {
		return nil, err
	}
	if len(row) < 8 {
		return nil, fmt.Errorf("%w: the first run of queue %d is not in it", table.ErrRow, q.Number)
	}
	m, err := queuedRun(r, string(row[8:]))
	if err == nil && m == nil {
		err = fmt.Errorf("%w: run %q of queue %d has no row", table.ErrRow, row[8:], q.Number)
	}
	return m, err
}

func readNumbers(r table.Reader) (*recordv1.QueueNumbers, error) {
	m, err := table.Get[recordv1.QueueNumbers](r, numbersKey())
	if m == nil {
		m = &recordv1.QueueNumbers{}
	}
	return m, err
}

func errTimer(runID string) error {
	return fmt.Errorf("%w: run %q has a timer and is in no queue", table.ErrRow, runID)
}

// counted counts the rows that are read, and each scan as one more.
type counted struct {
	table.Reader
	n *int
}

func (c counted) Get(key []byte) ([]byte, error) {
	*c.n++
	return c.Reader.Get(key)
}

func (c counted) Scan(from, to []byte) iter.Seq2[table.Row, error] {
	*c.n++
	return func(yield func(table.Row, error) bool) {
		for row, err := range c.Reader.Scan(from, to) {
			*c.n++
			if !yield(row, err) {
				return
			}
		}
	}
}

func decodeQueue(m *recordv1.Queue) *Queue {
	q := &Queue{
		Number: m.Number, Name: decodeName(m.Name), Settings: settingsOf(m), CreatedAt: m.CreatedAt,
		Delayed: m.Delayed, Leased: m.Leased, Running: m.Running, Exhausted: m.Exhausted,
		Requests: m.Requests, Starts: m.Starts, Ends: m.Ends,
	}
	oldest := int64(math.MaxInt64)
	for p, line := range m.Lines {
		if line.Ready > 0 && p <= MaxPriority {
			q.Ready += line.Ready
			q.ReadyBy[p] = line.Ready
			oldest = min(oldest, line.EnqueuedAt)
		}
	}
	if q.Ready > 0 {
		q.OldestAt = oldest
	}
	return q
}

func decodeRun(m *recordv1.QueuedRun, q *recordv1.Queue) *Run {
	r := &Run{
		RunID: m.RunId, Queue: decodeName(q.Name), State: State(m.State), Priority: m.Priority, Order: m.Order, EnqueuedAt: m.EnqueuedAt,
		NotBefore: m.NotBefore, StartAttempts: m.StartAttempts, Fence: m.Fence, Worker: m.Worker, ExpiresAt: m.ExpiresAt,
		Cancelling: m.Cancelling, Unsettled: m.Unsettled, Released: m.Released,
	}
	copy(r.RequestKey[:], m.RequestKey)
	return r
}

// cursor is a place in the list of a queue's runs.
type cursor struct {
	at    int64 // the time of which the list is
	state State
	from  [MaxPriority + 1]uint64 // the next orders: of each priority of Ready, else the first
}

const cursorSize = 8 + 1 + 8*(MaxPriority+1)

func (c *cursor) encode() []byte {
	b := append(binary.BigEndian.AppendUint64(nil, uint64(c.at)), byte(c.state))
	for _, n := range c.from {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func parseCursor(b []byte) (c cursor, err error) {
	if len(b) != cursorSize {
		return c, ErrToken
	}
	c.at, c.state = int64(binary.BigEndian.Uint64(b)), State(b[8])
	for i := range c.from {
		c.from[i] = binary.BigEndian.Uint64(b[9+8*i:])
	}
	if c.state < Ready || c.state > Exhausted || c.at < 0 {
		return c, ErrToken
	}
	return c, nil
}

// Total is what the queues of a tenant have together: how many there are, the runs that are ready
// or delayed, and those that are leased.
type Total struct{ Queues, Waiting, Leased uint64 }

// TotalOf returns the total of a tenant. It reads each of its queues, MaxQueues at most.
func TotalOf(s *storage.Store, tenant string) (t Total, err error) {
	behind := Name{}
	for more := true; more; {
		var page []*Queue
		if page, more, err = List(s, Name{Tenant: tenant}, behind, MaxTimers); err != nil {
			return t, err
		}
		for _, q := range page {
			t.Queues++
			t.Waiting += q.Depth()
			t.Leased += q.Leased
			behind = q.Name
		}
	}
	return t, nil
}
