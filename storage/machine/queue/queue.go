package queue

import (
	"fmt"
	"strings"
	"time"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Kind of the machine.
const Kind = 21

// MaxPriority is the highest priority of a request; the lowest is 0.
const MaxPriority = 9

// Limits of operations.
const (
	// MaxLeases bounds what one Lease takes.
	MaxLeases = 100
	// MaxTimers bounds what one Tick handles.
	MaxTimers = 1000
	// MaxDrains bounds what one EndDrains handles.
	MaxDrains = 100
	// MaxQueues bounds the queues of a tenant, which are never deleted.
	MaxQueues = 10_000
)

// Defaults of settings.
const (
	DefaultLeaseTTL         = 30 * time.Second
	DefaultMaxStartAttempts = 5
	DefaultAgingPeriod      = 10 * time.Minute
)

// Machine is the storage.Machine of this package.
type Machine struct {
	reads *int // Of rows, in tests; nil: they are not counted.
}

var (
	_ storage.Ender   = Machine{}
	_ storage.Noticer = Machine{}
)

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{
		{Prefix: []byte(timerTable), Name: "timers of queued runs"},
		{Prefix: []byte(leasableTable), Name: "queues with runs to lease"},
		{Prefix: []byte(exhaustedTable), Name: "runs without start attempts left"},
		{Prefix: []byte(unsettledTable), Name: "runs that may have ended"},
		{Prefix: []byte(numbersTable), Name: "numbers of queues and requests"},
		{Prefix: []byte(nameTable), Name: "queues by name"},
		{Prefix: []byte(orderTable), Name: "runs of queues"},
		{Prefix: []byte(keyTable), Name: "request keys"},
		{Prefix: []byte(queueTable), Name: "queues"},
		{Prefix: []byte(runTable), Name: "queued runs"},
		{Prefix: []byte(countTable), Name: "numbers of queues of tenants"},
		{Prefix: []byte(drainTable), Name: "pauses that drain"},
	}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Name is what a queue is known by (QUE-3).
type Name struct{ Tenant, Project, Environment, Queue string }

func (n Name) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", n.Tenant, n.Project, n.Environment, n.Queue)
}

func (n *Name) texts() [4]string { return [4]string{n.Tenant, n.Project, n.Environment, n.Queue} }

// check returns why the machine cannot keep a name. That of a filter may end early.
func (n *Name) check(filter bool) error {
	ended := false
	for i, text := range n.texts() {
		field := [...]string{"tenantId", "projectId", "environmentId", "queue"}[i]
		switch {
		case strings.Contains(text, "\x00"):
			return fmt.Errorf("queue: %s has a zero byte", field)
		case text == "" && !filter:
			return fmt.Errorf("queue: the name has no %s", field)
		case text != "" && ended:
			return fmt.Errorf("queue: the filter has a %s, but not what comes before it", field)
		}
		ended = ended || text == ""
	}
	return nil
}

func encodeName(n Name) *recordv1.QueueName {
	return &recordv1.QueueName{TenantId: n.Tenant, ProjectId: n.Project, EnvironmentId: n.Environment, Queue: n.Queue}
}

func decodeName(m *recordv1.QueueName) Name {
	return Name{Tenant: m.GetTenantId(), Project: m.GetProjectId(), Environment: m.GetEnvironmentId(), Queue: m.GetQueue()}
}

// OnFull says what becomes of a request over maxRunning (QUE-4).
type OnFull uint32

// What may become of a request over maxRunning.
const (
	OnFullQueue  OnFull = 0
	OnFullReject OnFull = 1
	OnFullDelay  OnFull = 2
)

// Settings of a queue as they are in effect.
type Settings struct {
	MaxRunning, MaxQueued uint64 // 0: no limit
	OnFull                OnFull
	// Delay of OnFullDelay. With 0 a request waits as with OnFullQueue.
	Delay            time.Duration
	LeaseTTL         time.Duration
	MaxStartAttempts uint32
	AgingPeriod      time.Duration
	DrainTimeout     time.Duration // 0: that of the nodes
	Paused           bool
}

// Change says which settings are replaced; nil: the setting stays. In LeaseTTL, MaxStartAttempts
// and AgingPeriod 0 is the default.
type Change struct {
	MaxRunning, MaxQueued *uint64
	OnFull                *OnFull
	Delay, LeaseTTL       *time.Duration
	MaxStartAttempts      *uint32
	AgingPeriod           *time.Duration
	DrainTimeout          *time.Duration
	Paused                *bool
}

func settingsOf(m *recordv1.Queue) Settings {
	s := m.GetSettings()
	out := Settings{
		MaxRunning: s.GetMaxRunning(), MaxQueued: s.GetMaxQueued(), OnFull: OnFull(s.GetOnFull()), Delay: time.Duration(s.GetDelay()),
		LeaseTTL: time.Duration(s.GetLeaseTtl()), MaxStartAttempts: s.GetMaxStartAttempts(), AgingPeriod: time.Duration(s.GetAgingPeriod()),
		DrainTimeout: time.Duration(s.GetDrainTimeout()), Paused: m.GetPaused(),
	}
	if out.LeaseTTL <= 0 {
		out.LeaseTTL = DefaultLeaseTTL
	}
	if out.MaxStartAttempts == 0 {
		out.MaxStartAttempts = DefaultMaxStartAttempts
	}
	if out.AgingPeriod <= 0 {
		out.AgingPeriod = DefaultAgingPeriod
	}
	return out
}

// State of a run from its request to its end.
type State uint32

// The states. In Ended, the request has no row any more.
const (
	Ended     State = 0
	Ready     State = 1
	Delayed   State = 2
	Leased    State = 3
	Running   State = 4
	Exhausted State = 5
)

func (s State) String() string {
	names := [...]string{"ended", "ready", "delayed", "leased", "running", "exhausted"}
	if int(s) >= len(names) {
		return fmt.Sprintf("state %d", uint32(s))
	}
	return names[s]
}

// Disposition is what becomes of a request (QUE-4).
type Disposition uint32

// The dispositions: READY, QUEUED and DELAYED of the API.
const (
	MayStart Disposition = 1 // at once
	Queued   Disposition = 2 // waits for a slot, or for the queue to be resumed
	Deferred Disposition = 3 // waits for its notBefore
)

// Outcome is how a lease ends (QUE-7).
type Outcome uint32

// The outcomes.
const (
	Started Outcome = 1
	Failed  Outcome = 2
	Skipped Outcome = 3
)

// effective is the priority of a run at a time (QUE-5).
func effective(priority uint32, enqueuedAt, at int64, period time.Duration) uint64 {
	return uint64(priority) + uint64(max(0, at-enqueuedAt))/uint64(period)
}

// later adds a duration to a stamp.
func later(stamp int64, d time.Duration) int64 {
	if sum := stamp + int64(d); sum >= stamp || d < 0 {
		return sum
	}
	return 1<<63 - 1
}
