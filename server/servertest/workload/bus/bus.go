package bus

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// Tenant is that of the events and of the subscriptions.
const Tenant = "tenant-bus"

// Types are those of the events that the subscriptions want. No subscription wants other events of
// the tenant.
func Types() []string { return []string{"BusOrdered", "BusShipped"} }

// Options configure clients of the bus. All are required but Sinks.
type Options struct {
	// Seed of everything that is drawn.
	Seed uint64
	// Nodes is how many nodes Dial reaches.
	Nodes int
	// Dial makes a connection to a node. It is closed by Close.
	Dial     func(node int) (*grpc.ClientConn, error)
	Recorder *history.Recorder
	// Think is the mean time between two calls, and Patience the longest deadline of one.
	Think, Patience time.Duration
	// Sinks: the nodes call OpenSink. Without it there is no subscription to a sink.
	Sinks bool
	// Out is called for every event that a node hands out.
	Out func(event history.Place)
}

// Bus is all clients of the bus.
type Bus struct {
	opts  Options
	conns []*grpc.ClientConn
	kinds []*kind
	calm  atomic.Bool // nothing fails any more

	mu    sync.Mutex
	sinks *rand.Rand
	seen  []int64 // the persistedAt of events that were delivered
}

// kind is one of the subscriptions.
type kind struct {
	history.Subscription
	sink    bool
	deletes bool
	from    int64 // where it begins when it is made
}

const (
	ackTimeout  = time.Second
	retryMost   = 500 * time.Millisecond
	maxInFlight = 8
	maxAttempts = 3
	// consumers of each subscription
	consumers = 2
	// sinkURL is never reached: the nodes call OpenSink.
	sinkURL = "http://sink.example"
)

// New makes clients, and connects them.
func New(opts Options) (*Bus, error) {
	b := &Bus{opts: opts, sinks: rand.New(rand.NewPCG(opts.Seed, 5000))}
	b.kinds = []*kind{
		{Subscription: history.Subscription{Name: "bus-hold", HoldRun: true}, deletes: true}, {Subscription: history.Subscription{Name: "bus-pull"}},
	}
	if opts.Sinks {
		b.kinds = append(b.kinds, &kind{Subscription: history.Subscription{Name: sinkName}, sink: true})
	}
	for _, k := range b.kinds {
		k.Tenant, k.Types = Tenant, Types()
		opts.Recorder.Subscribe(k.Subscription)
	}
	for node := range opts.Nodes {
		conn, err := opts.Dial(node)
		if err != nil {
			b.Close()
			return nil, err
		}
		b.conns = append(b.conns, conn)
	}
	return b, nil
}

// sinkName is the subscription to a sink.
const sinkName = "bus-sink"

// Close closes the connections.
func (b *Bus) Close() {
	for _, conn := range b.conns {
		_ = conn.Close()
	}
}

// Create makes the subscriptions.
func (b *Bus) Create(ctx context.Context) {
	for i, k := range b.kinds {
		b.client(ctx, k, uint64(5800+i)).create()
	}
}

// Run makes the subscriptions, and consumes and operates until ctx ends.
func (b *Bus) Run(ctx context.Context) {
	var all sync.WaitGroup
	for i, k := range b.kinds {
		all.Go(func() {
			o := b.client(ctx, k, uint64(5100+i))
			o.create()
			o.operate()
		})
		for j := range consumers {
			if k.sink {
				break
			}
			all.Go(func() {
				c := b.client(ctx, k, uint64(5200+10*i+j))
				for ; ctx.Err() == nil; c.pause(2 * b.opts.Think) {
					if c.rng.IntN(3) == 0 {
						c.pullOnce(5, 2*time.Second)
					} else {
						c.consume()
					}
				}
			})
		}
	}
	all.Wait()
}

// client makes one call after another about a subscription, until its context ends.
type client struct {
	*Bus
	*kind
	ctx context.Context
	rng *rand.Rand
}

func (b *Bus) client(ctx context.Context, k *kind, stream uint64) *client {
	return &client{Bus: b, kind: k, ctx: ctx, rng: rand.New(rand.NewPCG(b.opts.Seed, stream))}
}

// node returns the stub of any node.
func (c *client) node() runlogv1.SubscriptionServiceClient {
	return runlogv1.NewSubscriptionServiceClient(c.conns[c.rng.IntN(len(c.conns))])
}

// pause waits for up to a time.
func (c *client) pause(most time.Duration) {
	select {
	case <-c.ctx.Done():
	case <-time.After(time.Duration(c.rng.Int64N(int64(most)))):
	}
}

// calling bounds one call.
func (c *client) calling() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.opts.Patience/4+time.Duration(c.rng.Int64N(int64(c.opts.Patience))))
}

// act begins an act about some events.
func (c *client) act(what history.ActKind, places ...history.Place) history.ActTicket {
	return c.opts.Recorder.CallAct(history.Act{Kind: what, Subscription: c.Name, Places: places})
}

// delivered records an event that has arrived, which was handed out at a time at the earliest.
func (b *Bus) delivered(name string, p history.Place, since, persistedAt int64) {
	b.opts.Out(p)
	b.opts.Recorder.Act(history.Act{Kind: history.Delivered, Subscription: name, Places: []history.Place{p}}, since)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, persistedAt)
}
