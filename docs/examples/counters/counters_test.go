package counters_test

import (
	"context"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"runlog/docs/examples/counter"
	"runlog/docs/examples/counters"
	counterv1 "runlog/proto/example/counter/v1"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/cluster"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
)

// fakeNode is a replica without Raft: it applies each command to its store at once.
type fakeNode struct {
	t       *testing.T
	local   *storagetest.Local
	follows bool // It refuses what only the leader does.
	reads   int  // Calls of ReadIndex.
}

var (
	_ counters.Node = (*fakeNode)(nil)
	_ rpc.Leaders   = (*fakeNode)(nil)
)

// newNode makes a node with the machine, at the machine's level.
func newNode(t *testing.T) *fakeNode {
	t.Helper()
	l, err := storagetest.Open(storage.Options{
		FS: vfs.NewMem(), Machines: append(machine.All(), counter.Machine{}), FeatureLevel: counter.Level,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &fakeNode{t: t, local: l}
	op, err := storage.RaiseLevel(counter.Level, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := storage.EncodeCommand(op)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Execute(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *fakeNode) Execute(_ context.Context, cmd storage.Command) (storage.Outcome, error) {
	if n.follows {
		return storage.Outcome{}, raft.ErrNotLeader
	}
	p := storage.NewProposal(storagetest.Cluster, cmd.Size())
	p.Add(cmd)
	outcomes, err := n.local.Store.Apply(n.local.Applied().Index+1, 1, p.Seal(1))
	if err != nil {
		return storage.Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}

func (n *fakeNode) ReadIndex(context.Context) error { n.reads++; return nil }
func (n *fakeNode) Store() *storage.Store           { return n.local.Store }
func (n *fakeNode) Leading() bool                   { return !n.follows }
func (n *fakeNode) NotLeader() error                { return raft.ErrNotLeader }

// AtLeader finds no leader elsewhere: tests of whole nodes are for forwarding.
func (n *fakeNode) AtLeader(context.Context, func(*cluster.Leadership) error) error {
	return n.NotLeader()
}

// serve serves the counters of a node over gRPC, behind the chain that nodes have.
func serve(t *testing.T, n *fakeNode) counterv1.CounterServiceClient {
	t.Helper()
	services := []*rpc.Service{{Desc: &counterv1.CounterService_ServiceDesc}}
	services[0].Open(counters.New(n))
	methods, err := rpc.NewMethods(services)
	if err != nil {
		t.Fatal(err)
	}
	open, err := auth.New(t.Context(), auth.Options{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	chain := rpc.NewChain(rpc.ChainOptions{
		Limits: decode.Limits{Bytes: 1 << 20}, Caller: rpc.CallerClient, Methods: methods,
		Metrics: rpc.NewMetrics(prometheus.NewRegistry()), Leaders: func() rpc.Leaders { return n },
		Access: func() *rpc.Access { return &rpc.Access{Authenticator: open, Open: true} },
	})
	server := grpc.NewServer(chain.ServerOptions()...)
	chain.Register(server, services)
	listener := bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///counters", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return counterv1.NewCounterServiceClient(conn)
}

// TestCount increments counters and reads them.
func TestCount(t *testing.T) {
	n := newNode(t)
	c := serve(t, n)
	for i, want := range []uint64{3, 5} {
		got, err := c.Increment(t.Context(), &counterv1.IncrementRequest{Name: "runs", By: want - uint64(i)*3})
		if err != nil || got.Value != want {
			t.Fatalf("increment %d: %v, %v; want %d", i, got, err, want)
		}
	}
	for name, want := range map[string]uint64{"runs": 5, "steps": 0} {
		before := n.reads
		got, err := c.GetCounter(t.Context(), &counterv1.GetCounterRequest{Name: name})
		if err != nil || got.Value != want {
			t.Errorf("counter %q: %v, %v; want %d", name, got, err, want)
		}
		if n.reads != before+1 {
			t.Errorf("counter %q was read after %d calls of ReadIndex, want 1", name, n.reads-before)
		}
	}
}

// TestRefused: a refused request stores nothing, and its error lists every violation.
func TestRefused(t *testing.T) {
	c := serve(t, newNode(t))
	increment := func(name string, by uint64) error {
		_, err := c.Increment(t.Context(), &counterv1.IncrementRequest{Name: name, By: by})
		return err
	}
	if err := increment("runs", counter.Limit-1); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		err    error
		fields []string
	}{
		"nothing given":    {increment("", 0), []string{"by", "name"}},
		"too much at once": {increment("runs", counter.Limit+1), []string{"by"}},
		"above the limit":  {increment("runs", 2), []string{"by"}},
		"control in name":  {increment("a\nb", 1), []string{"name"}},
		"read of nothing": {func() error {
			_, err := c.GetCounter(t.Context(), &counterv1.GetCounterRequest{})
			return err
		}(), []string{"name"}},
	} {
		reason, fields := details(tt.err)
		if status.Code(tt.err) != codes.InvalidArgument || reason != "INVALID_ARGUMENT_FIELD" || !slices.Equal(fields, tt.fields) {
			t.Errorf("%s: %v with reason %q and fields %q, want fields %q", name, tt.err, reason, fields, tt.fields)
		}
	}
	got, err := c.GetCounter(t.Context(), &counterv1.GetCounterRequest{Name: "runs"})
	if err != nil || got.Value != counter.Limit-1 {
		t.Errorf("after refusals: %v, %v", got, err)
	}
}

// details returns the reason of an error and the fields of its violations, sorted.
func details(err error) (reason string, fields []string) {
	found := map[string]bool{}
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.Reason
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				found[v.Field] = true
			}
		}
	}
	return reason, slices.Sorted(maps.Keys(found))
}

// TestFollower: a follower reads for itself, and only the leader increments.
func TestFollower(t *testing.T) {
	n := newNode(t)
	n.follows = true
	c := serve(t, n)
	_, err := c.Increment(t.Context(), &counterv1.IncrementRequest{Name: "runs", By: 1})
	if reason, _ := details(err); status.Code(err) != codes.Unavailable || reason != "NO_LEADER" {
		t.Errorf("increment without a leader: %v with reason %q", err, reason)
	}
	if _, err := c.GetCounter(t.Context(), &counterv1.GetCounterRequest{Name: "runs"}); err != nil {
		t.Error(err)
	}
}

// TestPolicyRequired: a service that has a method without a policy is refused before it is served.
func TestPolicyRequired(t *testing.T) {
	_, err := rpc.NewMethods([]*rpc.Service{
		{Desc: &counterv1.CounterService_ServiceDesc},
		{Desc: &grpc_health_v1.Health_ServiceDesc},
	})
	if err == nil || !strings.Contains(err.Error(), "/grpc.health.v1.Health/Check has no policy") {
		t.Errorf("methods without a policy: %v", err)
	}
}

// TestNotLinked: the program has nothing of the examples.
func TestNotLinked(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", "runlog/cmd/runlog").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(list))
	if !slices.Contains(packages, "runlog/server/rpc") {
		t.Error("the list of packages is not that of the program")
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "runlog/docs/") || strings.HasPrefix(p, "runlog/proto/example/") {
			t.Errorf("the program links %s", p)
		}
	}
}
