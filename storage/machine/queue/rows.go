package queue

import (
	"fmt"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// work is one operation being applied. Every error of its methods is fatal.
type work struct {
	tx *storage.Tx
	r  table.Reader // tx, unless its reads are counted

	queues         []*queueState // in the order in which they were read
	numbers        *recordv1.QueueNumbers
	numbersChanged bool
}

// queueState is a queue that an operation has read. flush writes what has changed.
type queueState struct {
	*recordv1.Queue // Lines has one for each priority.
	settings        Settings
	leasable        bool // as the table of them says
	changed         bool
}

func (m Machine) begin(tx *storage.Tx) *work {
	w := &work{tx: tx, r: tx}
	if m.reads != nil {
		w.r = counted{tx, m.reads}
	}
	return w
}

// canLease tells whether a run of the queue may be leased.
func (q *queueState) canLease() bool {
	s := &q.settings
	return !s.Paused && q.ready() > 0 && (s.MaxRunning == 0 || q.Leased+q.Running < s.MaxRunning)
}

func (q *queueState) ready() (n uint64) {
	for _, l := range q.Lines {
		n += l.Ready
	}
	return n
}

// load takes a row over.
func (w *work) load(m *recordv1.Queue) *queueState {
	for len(m.Lines) <= MaxPriority {
		m.Lines = append(m.Lines, &recordv1.QueueLine{})
	}
	q := &queueState{Queue: m, settings: settingsOf(m)}
	q.leasable = q.canLease()
	w.queues = append(w.queues, q)
	return q
}

// queue returns a queue that exists.
func (w *work) queue(n uint64) (*queueState, error) {
	for _, q := range w.queues {
		if q.Number == n {
			return q, nil
		}
	}
	m, err := queueByNumber(w.r, n)
	if err != nil {
		return nil, err
	}
	return w.load(m), nil
}

// find returns a queue by its name; nil: there is none.
func (w *work) find(name Name) (*queueState, error) {
	n, err := numberOf(w.r, name)
	if err != nil || n == 0 {
		return nil, err
	}
	return w.queue(n)
}

// queuesOf returns how many queues a tenant has, or why it may not have another.
func (w *work) queuesOf(tenant string) (n uint64, refused, fatal error) {
	n, err := table.GetNumber(w.r, countKey(tenant))
	if err == nil && n >= MaxQueues {
		refused = &TooManyError{Tenant: tenant}
	}
	return n, refused, err
}

// findOrMake returns a queue by its name.
func (w *work) findOrMake(name Name) (q *queueState, refused, fatal error) {
	q, err := w.find(name)
	if err != nil || q != nil {
		return q, nil, err
	}
	n, refused, fatal := w.queuesOf(name.Tenant)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	if err := w.count(); err != nil {
		return nil, nil, err
	}
	table.SetNumber(w.tx, countKey(name.Tenant), n+1)
	w.numbers.Queue++
	w.numbersChanged = true
	table.SetNumber(w.tx, nameIn(nameTable, name), w.numbers.Queue)
	q = w.load(&recordv1.Queue{Number: w.numbers.Queue, Name: encodeName(name), CreatedAt: w.tx.Stamp()})
	q.changed = true
	return q, nil, nil
}

// count reads what the machine counts.
func (w *work) count() (err error) {
	if w.numbers == nil {
		w.numbers, err = readNumbers(w.r)
	}
	return err
}

// run returns the row of a run with its queue; nil: the run is in no queue.
func (w *work) run(runID string) (*recordv1.QueuedRun, *queueState, error) {
	m, err := queuedRun(w.r, runID)
	if err != nil || m == nil {
		return nil, nil, err
	}
	q, err := w.queue(m.Queue)
	return m, q, err
}

// timerOf returns when the machine must look at a run; 0: never.
func timerOf(m *recordv1.QueuedRun) int64 {
	switch State(m.State) {
	case Leased, Running:
		return m.ExpiresAt
	case Delayed:
		return m.NotBefore
	}
	return 0
}

// leave takes a run out of its state. Its row stays for enter or end.
func (w *work) leave(q *queueState, m *recordv1.QueuedRun) error {
	q.changed = true
	w.tx.Delete(orderKey(m))
	if due := timerOf(m); due != 0 {
		w.tx.Delete(timerKey(due, m.Order))
	}
	switch State(m.State) {
	case Ready:
		line := q.Lines[m.Priority]
		line.Ready--
		if line.Order == m.Order {
			return w.advance(q, m.Priority, m.Order)
		}
	case Exhausted:
		w.tx.Delete(exhaustedKey(m.Order))
		q.Exhausted--
	default:
		*q.counter(State(m.State))--
	}
	return nil
}

// counter is the count of a state other than ready.
func (q *queueState) counter(s State) *uint64 {
	switch s {
	case Delayed:
		return &q.Delayed
	case Leased:
		return &q.Leased
	case Running:
		return &q.Running
	default:
		return &q.Exhausted
	}
}

// countStart counts the start of a run: with its RunStarted or the release of its lease, whichever
// comes first, and once, however often the run is put back and started again.
func (q *queueState) countStart(r *recordv1.QueuedRun) {
	if !r.Counted {
		r.Counted, q.changed = true, true
		q.Starts++
	}
}

// advance finds the first ready run of a priority behind the one that was it.
func (w *work) advance(q *queueState, priority uint32, order uint64) error {
	line := q.Lines[priority]
	line.Order, line.EnqueuedAt = 0, 0
	if line.Ready == 0 {
		return nil
	}
	from, end := stateKey(q.Number, Ready, priority).Number(order+1), stateKey(q.Number, Ready, priority).After()
	for row, err := range w.r.Scan(from, end) {
		if err != nil {
			return err
		}
		p, err := parseRunRow(row.Key, row.Value)
		if err != nil {
			return err
		}
		line.Order, line.EnqueuedAt = p.order, p.enqueuedAt
		return nil
	}
	return fmt.Errorf("%w: queue %d lacks a ready run of priority %d", table.ErrRow, q.Number, priority)
}

// enter puts a run into a state, and writes its row.
func (w *work) enter(q *queueState, m *recordv1.QueuedRun, s State) error {
	q.changed = true
	m.State = uint32(s)
	w.tx.Set(orderKey(m), orderRow(m))
	if due := timerOf(m); due != 0 {
		w.tx.Set(timerKey(due, m.Order), []byte(m.RunId))
	}
	switch s {
	case Ready:
		line := q.Lines[m.Priority]
		if line.Ready == 0 || m.Order < line.Order {
			line.Order, line.EnqueuedAt = m.Order, m.EnqueuedAt
		}
		line.Ready++
	case Exhausted:
		w.tx.Set(exhaustedKey(m.Order), []byte(m.RunId))
		q.Exhausted++
	default:
		*q.counter(s)++
	}
	return table.Set(w.tx, runKey(m.RunId), m)
}

// end lets a run leave its queue forever.
func (w *work) end(q *queueState, m *recordv1.QueuedRun) error {
	w.tx.Delete(runKey(m.RunId))
	if m.Unsettled {
		w.tx.Delete(unsettledKey(m.RunId))
	}
	q.Ends++
	return w.leave(q, m)
}

// wait makes a run READY, or DELAYED if until is later than the stamp. One that has accepted a
// CANCEL is never ready again, and waits for its end (QUE-10). One that may have ended waits for
// its Settle (PRJ-17).
func (w *work) wait(q *queueState, m *recordv1.QueuedRun, until int64) error {
	m.Worker, m.ExpiresAt, m.LeaseTtl, m.NotBefore = "", 0, 0, 0
	state := Ready
	switch {
	case m.Cancelling:
		state = Exhausted
	case until > w.tx.Stamp():
		m.NotBefore, state = until, Delayed
	case m.Unsettled:
		state = Exhausted
	}
	return w.enter(q, m, state)
}

// flush writes the queues and numbers that have changed.
func (w *work) flush() error {
	if w.numbersChanged {
		w.numbersChanged = false
		if err := table.Set(w.tx, numbersKey(), w.numbers); err != nil {
			return err
		}
	}
	for _, q := range w.queues {
		if !q.changed {
			continue
		}
		q.changed = false
		key := nameIn(leasableTable, decodeName(q.Name))
		switch can := q.canLease(); {
		case can == q.leasable:
		case can:
			table.SetNumber(w.tx, key, q.Number)
		default:
			w.tx.Delete(key)
		}
		q.leasable = q.canLease()
		lines := q.Lines
		if q.ready() == 0 {
			q.Lines = nil
		}
		err := table.Set(w.tx, queueKey(q.Number), q.Queue)
		q.Lines = lines
		if err != nil {
			return err
		}
	}
	return nil
}
