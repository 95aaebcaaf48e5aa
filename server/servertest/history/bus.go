package history

// Subscription is one that clients have made. What its name says never changes, also if it is
// deleted and made again.
type Subscription struct {
	Name string `json:"name"`
	// The events that it wants: of a tenant, and of some types.
	Tenant string   `json:"tenant"`
	Types  []string `json:"types"`
	// HoldRun: the later events of a run wait while it has a dead letter; else they continue.
	HoldRun bool `json:"holdRun,omitempty"`
}

// ActKind is a kind of Act.
type ActKind string

const (
	// Reset makes a subscription, or moves its cursor: what was stored before From is not due.
	Reset ActKind = "reset"
	// Redriven has dead letters delivered again.
	Redriven ActKind = "redriven"
	// Discarded gives dead letters up.
	Discarded ActKind = "discarded"
	// Letters is a list of all dead letters.
	Letters ActKind = "letters"
	// Delivered is an event that has reached a receiver at Return. It was handed out at Call at the
	// earliest.
	Delivered ActKind = "delivered"
	// Acked is an acknowledgement that was sent at Call. Once it has Return, it was looked at.
	Acked ActKind = "acked"
	// Parked is a node that makes a dead letter of an event. It may end before that is durable.
	Parked ActKind = "parked"
	// Interrupted is a moment at which the leader changes, or may have ended. It is of no
	// subscription.
	Interrupted ActKind = "interrupted"
)

// Act is something that a receiver or an operator did, or saw, of a subscription.
type Act struct {
	Kind         ActKind `json:"kind"`
	Subscription string  `json:"subscription,omitempty"`
	Call         int64   `json:"call"`
	// Return is when the answer had come. 0: there was none, so that the call may have had its
	// effect, may have it later, or never.
	Return int64   `json:"return,omitempty"`
	Places []Place `json:"places,omitempty"`
	// From is a persistedAt; 0: the beginning of the log.
	From int64 `json:"from,omitempty"`
	// Settled: the answer says that all of Places were owed, and are settled now.
	Settled bool `json:"settled,omitempty"`
}

// Place names an event.
type Place struct {
	Run    string `json:"run"`
	RunSeq uint64 `json:"runSeq"`
}

// ActTicket identifies a recorded act.
type ActTicket int

// Subscribe records a subscription, before anything is done with it.
func (r *Recorder) Subscribe(s Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscriptions = append(r.subscriptions, s)
}

// CallAct records an act before its request leaves. An act without an answer need not return.
func (r *Recorder) CallAct(a Act) ActTicket {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Call, a.Return = r.now(), 0
	r.acts = append(r.acts, a)
	return ActTicket(len(r.acts) - 1)
}

// ReturnAct records the answer to an act; settled is as in Act.
func (r *Recorder) ReturnAct(t ActTicket, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acts[t].Return, r.acts[t].Settled = r.now(), settled
}

// VoidAct records that an act has changed nothing.
func (r *Recorder) VoidAct(t ActTicket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acts[t].Places, r.acts[t].Kind = nil, ""
}

// Act records an act that returns now, and was called at a time.
func (r *Recorder) Act(a Act, call int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Call, a.Return = call, r.now()
	r.acts = append(r.acts, a)
}

// Now is the time of the recorder.
func (r *Recorder) Now() int64 { return r.now() }
