package target

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"runlog/bench/benchtest"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	runlogv1 "runlog/proto/runlog/v1"
)

// asNode makes the test binary behave as runlog serve, for as long as another process has the lock
// of the file that it names.
const asNode = "RUNLOG_BENCH_AS_NODE"

func TestMain(m *testing.M) {
	started := len(os.Args) > 1 && os.Args[1] == "serve"
	if !started {
		os.Exit(m.Run())
	}
	// Never the tests, which would start more of these.
	if os.Getenv(asNode) == "" {
		fmt.Fprintln(os.Stderr, "not a node: "+asNode+" is not set")
		os.Exit(1)
	}
	if err := serveFakeNode(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeProcess is a node of a cluster whose members lead by a rule: the one that a file names, or
// else the first that is there. Each stores what it is sent for itself.
type fakeProcess struct {
	runlogv1.UnimplementedClusterServiceServer
	id, data string
	peers    []string
	asked    atomic.Bool // whether it is ready
}

// serveFakeNode takes the command line of a node.
func serveFakeNode(args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	p := &fakeProcess{}
	expect := f.Int("bootstrap-expect", 0, "")
	join := f.String("join", "", "")
	f.StringVar(&p.id, "node-id", "", "")
	f.StringVar(&p.data, "data-dir", "", "")
	listen := map[string]*string{}
	for _, name := range []string{"grpc", "http", "admin", "raft"} {
		listen[name] = f.String(name+"-listen", "", "")
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	p.peers = strings.Split(*join, ",")
	if len(p.peers) != *expect {
		return fmt.Errorf("%d nodes join, %d are expected", len(p.peers), *expect)
	}
	addresses, listeners := map[string]string{}, map[string]net.Listener{}
	for name, address := range listen {
		l, err := net.Listen("tcp", *address)
		if err != nil {
			return err
		}
		listeners[name], addresses[name] = l, l.Addr().String()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	alive, err := os.Open(os.Getenv(asNode))
	if err != nil {
		return err
	}
	go func() { // It ends by itself if the test was killed.
		_ = syscall.Flock(int(alive.Fd()), syscall.LOCK_SH)
		stop()
	}()
	server := grpc.NewServer()
	benchtest.NewStore().Register(server)
	runlogv1.RegisterClusterServiceServer(server, p)
	go func() { _ = server.Serve(listeners["grpc"]) }()
	go func() {
		for c, err := listeners["raft"].Accept(); err == nil; c, err = listeners["raft"].Accept() {
			_ = c.Close()
		}
	}()
	for _, name := range []string{"http", "admin"} {
		pages := &http.Server{Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: time.Second}
		go func() { _ = pages.Serve(listeners[name]) }()
	}
	text, err := json.Marshal(addresses)
	err = errors.Join(err, os.MkdirAll(p.data, 0o700), os.WriteFile(filepath.Join(p.data, addressesFile), text, 0o600))
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// answer is not ready at the first question.
func (p *fakeProcess) answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/readyz":
		if !p.asked.Swap(true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "/v1/cluster":
		text, _ := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(p.status())
		_, _ = w.Write(text)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (p *fakeProcess) leaderFile() string { return filepath.Join(p.data, "..", "..", "leader") }

func (p *fakeProcess) status() *runlogv1.GetStatusResponse {
	s := &runlogv1.GetStatusResponse{NodeId: p.id}
	named, _ := os.ReadFile(p.leaderFile())
	for i, address := range p.peers {
		m := &runlogv1.Member{NodeId: nodeName(i), Role: runlogv1.MemberRole_VOTER, State: runlogv1.MemberState_UNREACHABLE}
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			m.State, m.AppliedIndex, m.CommitIndex, m.Term = runlogv1.MemberState_FOLLOWER, 7, 7, 3
			s.Term = 3
			if s.LeaderId == "" || m.NodeId == string(named) {
				s.LeaderId = m.NodeId
			}
		}
		s.Members = append(s.Members, m)
	}
	for _, m := range s.Members {
		if m.NodeId == s.LeaderId {
			m.State = runlogv1.MemberState_LEADER
		}
	}
	return s
}

// TransferLeadership has the last node lead.
func (p *fakeProcess) TransferLeadership(context.Context, *runlogv1.TransferLeadershipRequest) (*runlogv1.TransferLeadershipResponse, error) {
	last := nodeName(len(p.peers) - 1)
	return &runlogv1.TransferLeadershipResponse{LeaderId: last}, os.WriteFile(p.leaderFile(), []byte(last), 0o600)
}
