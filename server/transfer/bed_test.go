package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// bed is a node that serves checkpoints, a connection to it with faults, and a receiving
// store.
type bed struct {
	t      rapid.TB
	source *storagetest.Local
	fs     *vfs.MemFS // the source's
	idle   time.Duration

	mu       sync.Mutex // of the source's log, and of the server
	server   *grpc.Server
	sender   *Source
	listener atomic.Pointer[bufconn.Listener]
	restarts atomic.Int64

	out    atomic.Int64 // checkpoints, according to hold
	made   atomic.Int64 // checkpoints in all
	copies sync.Map     // of the files of every checkpoint, by its applied index: map[string][]byte

	conn   *grpc.ClientConn
	client nodev1.NodeServiceClient
	faults faults

	target *storagetest.Local
	disk   *vfs.MemFS // the target's
}

// faults are applied to calls in sequence; later calls succeed.
type faults struct {
	sync.Mutex
	opens []string
	reads []readFault
	hits  int
	kill  context.CancelFunc // of the receiver
}

// readFault is applied to a ReadCheckpoint after a number of bytes.
type readFault struct {
	kind string
	at   int
}

func newBed(t rapid.TB) *bed {
	b := &bed{t: t, fs: vfs.NewMem(), disk: vfs.NewMem(), idle: time.Minute}
	var err error
	if b.source, err = storagetest.Open(storage.Options{FS: b.fs, MemTableBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	if b.target, err = storagetest.Open(storage.Options{FS: b.disk}); err != nil {
		t.Fatal(err)
	}
	b.conn, err = grpc.NewClient("passthrough:bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.listener.Load().DialContext(ctx) }),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.1, MaxDelay: 20 * time.Millisecond}}),
		grpc.WithStreamInterceptor(b.interceptRead), grpc.WithUnaryInterceptor(b.interceptOpen))
	if err != nil {
		t.Fatal(err)
	}
	b.client = nodev1.NewNodeServiceClient(b.conn)
	return b
}

// end closes everything, and checks that the sender holds nothing.
func (b *bed) end() {
	b.t.Helper()
	b.stop()
	if err := errors.Join(b.conn.Close(), b.source.Close(), b.target.Close()); err != nil {
		b.t.Fatal(err)
	}
	if n := b.out.Load(); n != 0 {
		b.t.Fatalf("%d checkpoints are out", n)
	}
	for _, fs := range []*vfs.MemFS{b.fs, b.disk} {
		if names, err := fs.List("store"); err != nil || len(names) != 2 {
			b.t.Fatalf("left in the directory: %q, %v", names, err)
		}
	}
}

// serve puts up the sender.
func (b *bed) serve() {
	b.sender = NewSource(SourceOptions{
		Node: "a-1", Idle: b.idle, Checkpoint: b.checkpoint, Log: slog.New(slog.DiscardHandler), Encode: encode,
		Hold: func(change int) { b.out.Add(int64(change)) },
	})
	b.server = grpc.NewServer()
	nodev1.RegisterNodeServiceServer(b.server, service{source: b.sender})
	l := bufconn.Listen(1 << 20)
	b.listener.Store(l)
	server := b.server
	go func() { _ = server.Serve(l) }()
}

func (b *bed) stop() {
	b.server.Stop()
	b.sender.Close()
}

// restart kills the sender in the middle of its work, and starts it again.
func (b *bed) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restarts.Add(1)
	b.stop()
	if err := b.source.Reopen(); err != nil {
		b.t.Errorf("reopen: %v", err)
	}
	b.serve()
}

// checkpoint is the store's, and keeps a copy of its files.
func (b *bed) checkpoint() (*storage.Checkpoint, error) {
	if b.out.Load() == 0 {
		return nil, errors.New("the log is not held")
	}
	before, _ := b.fs.List("store")
	c, err := b.source.Store.Checkpoint()
	if err != nil {
		return nil, err
	}
	b.made.Add(1)
	after, _ := b.fs.List("store")
	for _, dir := range after {
		if !strings.HasPrefix(dir, "checkpoint-") || slices.Contains(before, dir) {
			continue
		}
		files, err := filesOf(b.fs, "store/"+dir)
		if err != nil {
			return nil, err
		}
		b.copies.Store(c.Applied.Index, files)
	}
	return c, nil
}

// filesOf reads the files of a directory that belong to a checkpoint.
func filesOf(fs vfs.FS, dir string) (map[string][]byte, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin(dir, name))
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if name != "LOCK" && (len(data) > 0 || !strings.HasSuffix(name, ".log")) {
			files[name] = data
		}
	}
	return files, nil
}

// service is the part of the node's service that is tested here.
type service struct {
	nodev1.UnimplementedNodeServiceServer
	source *Source
}

func (s service) OpenCheckpoint(ctx context.Context, req *nodev1.OpenCheckpointRequest) (*nodev1.OpenCheckpointResponse, error) {
	return s.source.OpenCheckpoint(ctx, req)
}

func (s service) ReadCheckpoint(req *nodev1.ReadCheckpointRequest, stream grpc.ServerStreamingServer[nodev1.ReadCheckpointResponse]) error {
	return s.source.ReadCheckpoint(req, stream)
}

func (s service) CloseCheckpoint(ctx context.Context, req *nodev1.CloseCheckpointRequest) (*nodev1.CloseCheckpointResponse, error) {
	return s.source.CloseCheckpoint(ctx, req)
}

// grow applies proposals to the source, with events of random bytes, and flushes.
func (b *bed) grow(proposals, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range proposals {
		n := len(b.source.Entries)
		events := storagetest.Events("run", n*4, 4)
		for i := range events {
			events[i].Payload = fmt.Appendf(nil, `{"noise":"%x"}`, noise(n*4+i, size))
		}
		o, err := b.source.Propose(int64(n+1), []storagetest.Request{{Append: &storage.Append{RunID: "run", Events: events}}})
		if err != nil || o[0].Err != nil {
			b.t.Errorf("propose: %+v, %v", o, err)
		}
	}
	if err := b.source.Store.MakeDurable(b.source.Applied().Index); err != nil {
		b.t.Errorf("flush: %v", err)
	}
}

func noise(seed, size int) []byte {
	raw := make([]byte, size)
	_, _ = randv2.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(raw)
	return raw
}

// load appends to the source until it is stopped.
func (b *bed) load() (stop func()) {
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				b.grow(1, 500)
			}
		}
	})
	return func() { close(done); writer.Wait() }
}

// pull pulls a checkpoint without long pauses, and compares the received files with the sender's.
func (b *bed) pull(ctx context.Context, change ...func(*pull)) (*storage.Received, error) {
	var last error
	p := &pull{id: rand.Text(), client: b.client, store: b.target.Store, log: slog.New(slog.DiscardHandler),
		wait: time.Millisecond, maxWait: 10 * time.Millisecond, stall: stallLimit}
	p.progress = func(have, total uint64) {
		if last = nil; have == total {
			last = b.sameFiles(p.incoming.Applied().Index)
		} else if have > total {
			b.t.Errorf("%d of %d bytes", have, total)
		}
	}
	for _, c := range change {
		c(p)
	}
	received, err := p.run(ctx)
	if err == nil && last != nil {
		b.t.Errorf("what was finished is not what was sent: %v", last)
	}
	return received, err
}

// sameFiles compares the received files with a checkpoint's, byte for byte.
func (b *bed) sameFiles(index uint64) error {
	names, err := b.disk.List("store")
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "seed-") })
	if err != nil || len(names) != 1 {
		return fmt.Errorf("transfers: %q, %w", names, err)
	}
	got, err := filesOf(b.disk, "store/"+names[0])
	if err != nil {
		return err
	}
	kept, ok := b.copies.Load(index)
	if !ok {
		return fmt.Errorf("no checkpoint of index %d was made", index)
	}
	want := kept.(map[string][]byte)
	if len(got) != len(want) {
		return fmt.Errorf("%d files, want %d", len(got), len(want))
	}
	for name, data := range want {
		if !bytes.Equal(got[name], data) {
			return fmt.Errorf("%s has %d bytes, want %d, or others", name, len(got[name]), len(data))
		}
	}
	return nil
}

// installed installs a received checkpoint, and checks that the log brings the store up to the
// source.
func (b *bed) installed(received *storage.Received) {
	b.t.Helper()
	if err := received.Install(); err != nil {
		b.t.Fatalf("install: %v", err)
	}
	if b.target.Applied() != received.Applied {
		b.t.Fatalf("installed %+v, want %+v", b.target.Applied(), received.Applied)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target.Entries = b.source.Entries
	if _, err := b.target.Prefix(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.target.Replay(nil); err != nil {
		b.t.Fatalf("replay: %v", err)
	}
	if b.target.Applied() != b.source.Applied() {
		b.t.Fatalf("at %+v, the source at %+v", b.target.Applied(), b.source.Applied())
	}
}

func (b *bed) interceptOpen(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method != nodev1.NodeService_OpenCheckpoint_FullMethodName {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	fault := ""
	b.faults.Lock()
	if len(b.faults.opens) > 0 {
		fault, b.faults.opens = b.faults.opens[0], b.faults.opens[1:]
	}
	b.faults.Unlock()
	if fault == "refuse" {
		return status.Error(codes.Unavailable, "no way there")
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	resp := reply.(*nodev1.OpenCheckpointResponse)
	switch {
	case err != nil || fault == "":
		return err
	case fault == "lose":
		return status.Error(codes.Unavailable, "the answer is lost")
	case fault == "promise":
		// Another rolling hash, with a matching checksum.
		m := resp.Manifest[:len(resp.Manifest)-4]
		m[40] ^= 1
		resp.Manifest = binary.BigEndian.AppendUint32(m, crc32.Checksum(m, castagnoli))
	default:
		resp.Manifest[len(fault)%len(resp.Manifest)] ^= 1
	}
	return nil
}

func (b *bed) interceptRead(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	b.faults.Lock()
	defer b.faults.Unlock()
	s := &faultyStream{ClientStream: stream, b: b}
	if len(b.faults.reads) > 0 {
		s.fault, b.faults.reads = b.faults.reads[0], b.faults.reads[1:]
	}
	return s, nil
}

// faultyStream is a ReadCheckpoint with a fault.
type faultyStream struct {
	grpc.ClientStream
	b     *bed
	fault readFault
	ended bool
}

func (s *faultyStream) RecvMsg(m any) error {
	if s.ended {
		return s.end()
	}
	if err := s.ClientStream.RecvMsg(m); err != nil || s.fault.kind == "" {
		return err
	}
	resp := m.(*nodev1.ReadCheckpointResponse)
	if s.fault.at > len(resp.Data) || s.fault.at == len(resp.Data) && resp.FileCrc == nil {
		s.fault.at -= len(resp.Data)
		return nil
	}
	s.b.faults.Lock()
	s.b.faults.hits++
	s.b.faults.Unlock()
	at := s.fault.at
	switch s.fault.kind {
	case "flip": // on the way
		resp.DataCrc ^= 1
		if at < len(resp.Data) {
			resp.DataCrc ^= 1
			resp.Data[at] ^= 1
		}
	case "lie": // before it was sent
		if at < len(resp.Data) {
			resp.Data[at] ^= 1
			resp.DataCrc = crc32.Checksum(resp.Data, castagnoli)
		} else {
			*resp.FileCrc ^= 1
		}
	default:
		resp.Data, resp.FileCrc = resp.Data[:at], nil
		resp.DataCrc = crc32.Checksum(resp.Data, castagnoli)
		s.ended = true
	}
	return nil
}

// end is how a stream ends early.
func (s *faultyStream) end() error {
	switch s.fault.kind {
	case "end":
		return io.EOF
	case "stall":
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	case "restart":
		s.b.restart()
		var m nodev1.ReadCheckpointResponse
		for {
			if err := s.ClientStream.RecvMsg(&m); err != nil {
				return err
			}
		}
	case "forget":
		s.b.mu.Lock()
		sender := s.b.sender
		s.b.mu.Unlock()
		for _, h := range sender.take(func(*heldCheckpoint) bool { return true }) {
			sender.drop(h, "the test wants it")
		}
	case "kill":
		s.b.faults.Lock()
		s.b.faults.kill()
		s.b.faults.Unlock()
	}
	return status.Error(codes.Unavailable, "the stream is cut")
}

// startBed makes a bed that ends with the test.
func startBed(t *testing.T) *bed {
	b := newBed(t)
	b.serve()
	b.grow(3, 20_000)
	t.Cleanup(b.end)
	return b
}

// encode turns a refusal into a status as the server does: code and reason.
func encode(err error) error {
	var own *contract.Error
	if errors.As(err, &own) {
		told, err := status.New(own.Code(), own.Message).WithDetails(&errdetails.ErrorInfo{Reason: string(own.Reason)})
		if err != nil {
			panic(err)
		}
		return told.Err()
	}
	return status.Error(codes.Internal, err.Error())
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
