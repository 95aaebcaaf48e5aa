package queue_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// model is what the machine must keep, as plainly as it can be said.
type model struct {
	stamp    int64
	queues   map[queue.Name]*modelQueue
	runs     map[string]*modelRun
	requests map[[32]byte]modelRequest
	fences   map[string]uint64 // of every run that exists: what its writers must have
	order    uint64
	events   map[string][]string             // the keys of every run
	statuses map[string][]contract.RunStatus // that every run may have, sorted
}

type modelQueue struct {
	settings               queue.Settings
	created                int64
	number                 uint64
	requests, starts, ends uint64
}

type modelRun struct {
	queue.Run
	outcome queue.Outcome
	bytes   uint64 // of an answer
	ttl     time.Duration
	started bool // it has its RunStarted
	counted bool // among the starts of its queue
}

type modelRequest struct {
	runID  string
	digest string
	queue.RequestedError
}

func newModel() *model {
	return &model{
		queues: map[queue.Name]*modelQueue{}, runs: map[string]*modelRun{}, requests: map[[32]byte]modelRequest{}, fences: map[string]uint64{},
		events: map[string][]string{}, statuses: map[string][]contract.RunStatus{},
	}
}

// append is an append of one event, of which machines get a notice.
func (m *model) append(runID, key, eventType string, notice contract.Notice) {
	if slices.Contains(m.events[runID], key) {
		return
	}
	m.events[runID] = append(slices.Clone(m.events[runID]), key)
	if _, ok := m.fences[runID]; !ok {
		m.fences[runID] = 0
	}
	switch r := m.runs[runID]; {
	case r == nil:
	case notice == contract.NoticeStarted && !slices.Contains(m.mayBe(runID), contract.StatusPending):
		// No start (PRJ-4).
	case notice == contract.NoticeStarted && !r.started:
		r.started = true
		m.countStart(r)
		if r.State == queue.Leased {
			r.State = queue.Running
		}
	case notice == contract.NoticeCancelling:
		r.Cancelling = true
		if r.State == queue.Leased {
			m.leaseEnds(r)
		}
		if r.State != queue.Running {
			m.waits(r, 0)
		}
	}
	var next []contract.RunStatus
	for _, status := range m.mayBe(runID) {
		after, changes := modelStatuses[status][eventType]
		if changes {
			next = append(next, after)
		}
		// The step may not allow its event.
		if !changes || eventType == contract.StepWaitingForAttestation {
			next = append(next, status)
		}
	}
	m.setStatuses(runID, next)
}

// countStart counts the first start of a run, whatever starts it.
func (m *model) countStart(r *modelRun) {
	if !r.counted {
		r.counted = true
		m.queues[r.Queue].starts++
	}
}

// waits makes a run ready: at a time, if that lies ahead. One that is cancelled waits for its end,
// and one that may have ended waits to be settled.
func (m *model) waits(r *modelRun, until int64) {
	r.State, r.NotBefore, r.ExpiresAt, r.Worker = queue.Ready, 0, 0, ""
	switch {
	case r.Cancelling:
		r.State = queue.Exhausted
	case until > m.stamp:
		r.State, r.NotBefore = queue.Delayed, until
	case r.Unsettled:
		r.State = queue.Exhausted
	}
}

// mayBe returns the statuses that a run may have.
func (m *model) mayBe(runID string) []contract.RunStatus {
	if set := m.statuses[runID]; set != nil {
		return set
	}
	return []contract.RunStatus{contract.StatusPending}
}

// setStatuses changes the statuses that a run may have. One that is over for certain leaves its
// queue, and one that may be over waits to be settled (PRJ-17).
func (m *model) setStatuses(runID string, next []contract.RunStatus) {
	over := func(set []contract.RunStatus) (n int) {
		for _, s := range set {
			if s == contract.StatusCompleted || s == contract.StatusFailed || s == contract.StatusCancelled {
				n++
			}
		}
		return n
	}
	slices.Sort(next)
	next = slices.Compact(next)
	last := m.mayBe(runID)
	m.statuses[runID] = next
	r := m.runs[runID]
	switch n := over(next); {
	case n == len(next) && over(last) < len(last):
		m.end(runID)
	case n > 0 && n < len(next) && over(last) == 0 && r != nil:
		if r.Unsettled = true; r.State == queue.Ready {
			m.waits(r, 0)
		}
	}
}

func (m *model) settle(runID string, lastSeq uint64, status contract.RunStatus) error {
	r := m.runs[runID]
	switch {
	case r == nil:
		return nil
	case lastSeq != m.seqs(runID):
		return &storage.SequenceError{RunID: runID, Expected: lastSeq, Last: m.seqs(runID)}
	case !slices.Contains(m.mayBe(runID), status): // An earlier Settle of the entry said another.
		return &storage.StatusError{RunID: runID, Status: status}
	}
	waited := r.Unsettled
	r.Unsettled = false
	m.setStatuses(runID, []contract.RunStatus{status})
	if waited && m.runs[runID] != nil && r.State == queue.Exhausted && !m.exhausted(r) {
		m.waits(r, 0)
	}
	return nil
}

// modelStatuses are the statuses of a run by the one before and the type of an event (PRJ-4). What
// has no row changes nothing.
var modelStatuses = map[contract.RunStatus]map[string]contract.RunStatus{
	contract.StatusPending: {
		contract.RunStarted: contract.StatusRunning, contract.RunFailed: contract.StatusFailed, contract.RunCancelled: contract.StatusCancelled,
	},
	contract.StatusRunning: {
		contract.RunPaused: contract.StatusPaused, contract.StepWaitingForAttestation: contract.StatusWaiting,
		contract.RunCompleted: contract.StatusCompleted, contract.RunFailed: contract.StatusFailed, contract.RunCancelled: contract.StatusCancelled,
	},
	contract.StatusWaiting: {
		contract.RunPaused: contract.StatusPaused, contract.RunResumed: contract.StatusRunning,
		contract.RunFailed: contract.StatusFailed, contract.RunCancelled: contract.StatusCancelled,
	},
	contract.StatusPaused: {
		contract.RunResumed: contract.StatusRunning, contract.RunFailed: contract.StatusFailed, contract.RunCancelled: contract.StatusCancelled,
	},
}

// mayWrite says why an append under a fence stores nothing (QUE-8).
func (m *model) mayWrite(runID, key string, fence uint64) error {
	if fence == m.fences[runID] || slices.Contains(m.events[runID], key) {
		return nil
	}
	return &storage.LeaseLostError{RunID: runID, Given: fence, Current: m.fences[runID]}
}

// leaseEnds takes the right to write from the worker that has a lease. No other worker gets it.
func (m *model) leaseEnds(r *modelRun) { m.fences[r.RunID] = r.Fence + 1 }

// taken gives it to another one: the fences of leases are 2, 4, 6 and so on.
func (m *model) taken(r *modelRun) {
	for m.fences[r.RunID]++; m.fences[r.RunID]%2 != 0; {
		m.fences[r.RunID]++
	}
}

func (m *model) seqs(runID string) uint64 { return uint64(len(m.events[runID])) }

func (m *model) clone() *model {
	c := *m
	c.queues, c.runs = map[queue.Name]*modelQueue{}, map[string]*modelRun{}
	for name, q := range m.queues {
		copied := *q
		c.queues[name] = &copied
	}
	for id, r := range m.runs {
		copied := *r
		c.runs[id] = &copied
	}
	c.requests, c.fences, c.events = maps.Clone(m.requests), maps.Clone(m.fences), maps.Clone(m.events)
	c.statuses = maps.Clone(m.statuses)
	return &c
}

// of returns the runs of a queue in some states, in commit order.
func (m *model) of(name queue.Name, states ...queue.State) (list []*modelRun) {
	for _, r := range m.runs {
		if r.Queue == name && slices.Contains(states, r.State) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *modelRun) int { return cmp.Compare(a.Order, b.Order) })
	return list
}

func (m *model) count(name queue.Name, states ...queue.State) uint64 {
	return uint64(len(m.of(name, states...)))
}

// sorted returns the ready runs of a queue as they are to be leased (QUE-5).
func (m *model) sorted(name queue.Name) []*modelRun {
	list := m.of(name, queue.Ready)
	rank := func(r *modelRun) int64 {
		return int64(r.Priority) + (m.stamp-r.EnqueuedAt)/int64(m.queues[name].settings.AgingPeriod)
	}
	slices.SortStableFunc(list, func(a, b *modelRun) int { return cmp.Compare(rank(b), rank(a)) })
	return list
}

func (m *model) queue(name queue.Name) *modelQueue {
	if m.queues[name] == nil {
		m.queues[name] = &modelQueue{
			number: uint64(len(m.queues) + 1), created: m.stamp,
			settings: queue.Settings{LeaseTTL: 30 * time.Second, MaxStartAttempts: 5, AgingPeriod: 10 * time.Minute},
		}
	}
	return m.queues[name]
}

func (m *model) put(name queue.Name, c *queue.Change) {
	s := &m.queue(name).settings
	set(&s.MaxRunning, c.MaxRunning, 0)
	set(&s.MaxQueued, c.MaxQueued, 0)
	set(&s.OnFull, c.OnFull, 0)
	set(&s.Delay, c.Delay, 0)
	set(&s.LeaseTTL, c.LeaseTTL, 30*time.Second)
	set(&s.MaxStartAttempts, c.MaxStartAttempts, 5)
	set(&s.AgingPeriod, c.AgingPeriod, 10*time.Minute)
	set(&s.DrainTimeout, c.DrainTimeout, 0)
	if c.Paused != nil {
		s.Paused = *c.Paused
	}
}

func set[T comparable](field, to *T, standard T) {
	var zero T
	switch {
	case to == nil:
	case *to == zero:
		*field = standard
	default:
		*field = *to
	}
}

func (m *model) pause(name queue.Name, paused bool) error {
	if m.queues[name] == nil {
		return &queue.NotFoundError{Name: name}
	}
	m.queues[name].settings.Paused = paused
	return nil
}

// request is Request, or Check: then it changes nothing.
func (m *model) request(r *queue.RunRequest, check bool) (reply queue.Requested, refused error) {
	if known, ok := m.requests[r.Key]; ok {
		var fields []string
		if known.digest != string(r.PlanDigest) {
			fields = append(fields, "planDigest")
		}
		if r.RunIDNamed && known.runID != r.RunID {
			fields = append(fields, "runId")
		}
		if fields != nil {
			return reply, &queue.RequestConflictError{RunID: known.runID, Fields: fields}
		}
		return reply, &known.RequestedError
	}
	fence, exists := m.fences[r.RunID]
	if fence > 0 {
		return reply, &queue.RequestConflictError{RunID: r.RunID, Fields: []string{"requestKey"}}
	}
	if !exists && !check {
		return reply, &storage.RunNotFoundError{RunID: r.RunID}
	}
	if check && m.queues[r.Name] == nil {
		return reply, nil
	}
	q := m.queue(r.Name)
	s := q.settings
	running, leased := m.count(r.Name, queue.Running), m.count(r.Name, queue.Leased)
	ready, waiting := m.count(r.Name, queue.Ready), m.count(r.Name, queue.Ready, queue.Delayed)
	over := s.MaxRunning > 0 && running+leased+ready >= s.MaxRunning
	bounded := over || s.MaxRunning == 0 || s.Paused || r.NotBefore > m.stamp
	free := int64(s.MaxRunning) - int64(running+leased)
	if over && s.OnFull == queue.OnFullReject || bounded && s.MaxQueued > 0 && int64(waiting)-max(free, 0) >= int64(s.MaxQueued) {
		return reply, &queue.FullError{
			Name: r.Name, OnFull: s.OnFull, MaxRunning: s.MaxRunning, MaxQueued: s.MaxQueued, Running: running, Leased: leased, Waiting: waiting,
		}
	}
	if check {
		return reply, nil
	}
	until := r.NotBefore
	if over && s.OnFull == queue.OnFullDelay {
		until = max(until, m.stamp+int64(s.Delay))
	}
	m.order++
	q.requests++
	m.fences[r.RunID] = 1
	run := &modelRun{Run: queue.Run{
		RunID: r.RunID, Queue: r.Name, State: queue.Ready, Priority: r.Priority, Order: m.order, EnqueuedAt: m.stamp, Fence: 1, RequestKey: r.Key,
	}, bytes: uint64(r.AnswerBytes)}
	switch {
	case until > m.stamp:
		run.State, run.NotBefore = queue.Delayed, until
		reply = queue.Requested{Disposition: queue.Deferred, NotBefore: until}
	case over || s.Paused:
		reply = queue.Requested{Disposition: queue.Queued}
	default:
		reply = queue.Requested{Disposition: queue.MayStart}
	}
	if run.State == queue.Ready {
		for _, other := range m.of(r.Name, queue.Ready) {
			if other.Priority >= run.Priority {
				reply.Position++
			}
		}
		reply.Position++
	}
	m.runs[r.RunID] = run
	m.requests[r.Key] = modelRequest{r.RunID, string(r.PlanDigest), queue.RequestedError{
		RunID: r.RunID, RequestedAt: m.stamp, Disposition: reply.Disposition, NotBefore: reply.NotBefore,
	}}
	return reply, nil
}

// tick handles at most so many timers.
func (m *model) tick(most int) (timers, expired int) {
	due := func(r *modelRun) int64 { return max(r.NotBefore, r.ExpiresAt) }
	var list []*modelRun
	for _, r := range m.runs {
		if due(r) != 0 && due(r) <= m.stamp {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *modelRun) int { return cmp.Or(cmp.Compare(due(a), due(b)), cmp.Compare(a.Order, b.Order)) })
	list = list[:min(len(list), most)]
	for _, r := range list {
		leased := r.ExpiresAt != 0
		if leased {
			expired++
			m.leaseEnds(r)
		}
		m.waits(r, 0)
		if leased && r.StartAttempts >= m.queues[r.Queue].settings.MaxStartAttempts {
			r.State = queue.Exhausted
		}
	}
	return len(list), expired
}

func texts(n queue.Name) []string {
	return []string{n.Tenant, n.Project, n.Environment, n.Queue}
}

func within(n, filter queue.Name) bool {
	for i, text := range texts(filter) {
		if text != "" && text != texts(n)[i] {
			return false
		}
	}
	return true
}

// leasable returns the queues with a run to lease and a slot for it, by name.
func (m *model) leasable(filter queue.Name) (names []queue.Name) {
	for name := range m.queues {
		if within(name, filter) && m.canLease(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b queue.Name) int { return slices.Compare(texts(a), texts(b)) })
	return names
}

func (m *model) canLease(name queue.Name) bool {
	s := m.queues[name].settings
	return !s.Paused && m.count(name, queue.Ready) > 0 && (s.MaxRunning == 0 || m.count(name, queue.Leased, queue.Running) < s.MaxRunning)
}

func (m *model) lease(r *queue.LeaseRequest) (got queue.Leases) {
	_, got.Expired = m.tick(100)
	names := m.leasable(r.Within)
	if i := slices.IndexFunc(names, func(n queue.Name) bool { return slices.Compare(texts(n), texts(r.After)) > 0 }); i > 0 && within(r.After, r.Within) {
		names = slices.Concat(names[i:], names[:i])
	}
	names = names[:min(len(names), r.Max)]
	if len(names) > 0 {
		got.Last = names[len(names)-1]
	}
	bytes := uint64(0)
	for took := true; took; {
		took = false
		for _, name := range names {
			if len(got.List) == r.Max || !m.canLease(name) {
				continue
			}
			run := m.sorted(name)[0]
			if bytes += run.bytes; r.MaxBytes > 0 && bytes > uint64(r.MaxBytes) && len(got.List) > 0 {
				got.Last = got.List[len(got.List)-1].Name
				return got
			}
			ttl := r.TTL
			if ttl == 0 {
				ttl = m.queues[name].settings.LeaseTTL
			}
			m.taken(run)
			run.State, run.Worker, run.ExpiresAt, run.Fence, run.outcome = queue.Leased, r.Worker, m.stamp+int64(ttl), m.fences[run.RunID], 0
			run.ttl = ttl
			if run.started {
				run.State = queue.Running
			}
			run.StartAttempts++
			got.List = append(got.List, queue.Held{
				RunID: run.RunID, Name: name, Fence: run.Fence, ExpiresAt: run.ExpiresAt, StartAttempt: run.StartAttempts,
				AsRequested: m.seqs(run.RunID) == 1,
			})
			took = true
		}
	}
	return got
}

// held returns the run of a fence, or why it is not the last lease's.
func (m *model) held(runID string, fence uint64) (*modelRun, error) {
	r := m.runs[runID]
	switch {
	case r == nil:
		return nil, &queue.NotQueuedError{RunID: runID, Fence: m.fences[runID]}
	case fence != r.Fence:
		return nil, &storage.LeaseLostError{RunID: runID, Given: fence, Current: r.Fence}
	}
	return r, nil
}

func (m *model) lasts(r *modelRun) bool { return m.stamp < r.ExpiresAt }

func (r *modelRun) ended() error {
	return &queue.LeaseEndedError{RunID: r.RunID, Fence: r.Fence, State: r.State, Outcome: r.outcome}
}

func (m *model) renew(runID string, fence uint64, ttl time.Duration) (int64, error) {
	r, err := m.held(runID, fence)
	if err != nil {
		return 0, err
	}
	if !m.lasts(r) {
		return 0, r.ended()
	}
	if ttl > 0 {
		r.ttl = ttl
	}
	r.ExpiresAt = m.stamp + int64(r.ttl)
	return r.ExpiresAt, nil
}

func (m *model) release(l *queue.LeaseRelease) (state queue.State, repeated bool, refused error) {
	r, err := m.held(l.RunID, l.Fence)
	if err != nil {
		return 0, false, err
	}
	if !m.lasts(r) {
		if r.outcome == l.Outcome && !l.Exhausted {
			return r.State, true, nil
		}
		return 0, false, r.ended()
	}
	exhausted := l.Outcome == queue.Failed && m.exhausted(r) && !r.Cancelling
	if exhausted != l.Exhausted {
		return 0, false, m.changed(r)
	}
	if l.Outcome != queue.Started {
		m.leaseEnds(r)
	}
	switch {
	case exhausted || l.Outcome == queue.Skipped:
		m.end(r.RunID)
		return queue.Ended, false, nil
	case l.Outcome == queue.Started:
		m.countStart(r)
		r.State, r.ExpiresAt, r.Released = queue.Running, 0, true
	default:
		m.waits(r, l.RetryAt)
	}
	r.outcome = l.Outcome
	return r.State, false, nil
}

func (m *model) exhausted(r *modelRun) bool {
	return r.StartAttempts >= m.queues[r.Queue].settings.MaxStartAttempts
}

func (m *model) changed(r *modelRun) error {
	return &queue.ChangedError{
		RunID: r.RunID, State: r.State, StartAttempts: r.StartAttempts, MaxStartAttempts: m.queues[r.Queue].settings.MaxStartAttempts,
	}
}

// end is also what a terminal event does.
func (m *model) end(runID string) {
	if r := m.runs[runID]; r != nil {
		m.queues[r.Queue].ends++
		delete(m.runs, runID)
	}
}

func (m *model) expire(runID string, fence uint64) error {
	r, err := m.held(runID, fence)
	if err != nil {
		return err
	}
	if r.Cancelling || r.Unsettled || r.State != queue.Exhausted && (r.ExpiresAt == 0 || m.lasts(r) || !m.exhausted(r)) {
		return m.changed(r)
	}
	m.taken(r)
	m.end(runID)
	return nil
}

func (m *model) retry(runID string, fence uint64) error {
	r, err := m.held(runID, fence)
	if err != nil {
		return err
	}
	if r.Cancelling || r.Unsettled || r.State != queue.Exhausted && (r.ExpiresAt == 0 || m.lasts(r) || !m.exhausted(r)) {
		return m.changed(r)
	}
	if r.ExpiresAt != 0 {
		m.leaseEnds(r)
	}
	r.StartAttempts--
	m.waits(r, 0)
	return nil
}

// waiting returns a run that is not running.
func (m *model) waiting(runID string) (*modelRun, error) {
	switch r := m.runs[runID]; {
	case r == nil:
		return nil, &queue.NotQueuedError{RunID: runID, Fence: m.fences[runID]}
	case r.State == queue.Running:
		return nil, &queue.RunningError{RunID: runID}
	default:
		return r, nil
	}
}

func (m *model) cancel(runID string) error {
	r, err := m.waiting(runID)
	if err != nil {
		return err
	}
	m.taken(r)
	m.end(runID)
	return nil
}

func (m *model) requeue(runID string, lastSeq *uint64) (state queue.State, repeated bool, refused error) {
	r := m.runs[runID]
	switch {
	case r == nil:
		return 0, false, &queue.NotQueuedError{RunID: runID, Fence: m.fences[runID]}
	case r.State != queue.Running || m.lasts(r):
		return r.State, true, nil
	case lastSeq != nil && *lastSeq != m.seqs(runID):
		return 0, false, m.changed(r)
	}
	m.taken(r)
	r.StartAttempts, r.Fence = 0, m.fences[runID]
	m.waits(r, 0)
	return r.State, false, nil
}

func (m *model) reprioritize(runID string, priority uint32) error {
	r, err := m.waiting(runID)
	if err == nil {
		r.Priority = priority
	}
	return err
}
