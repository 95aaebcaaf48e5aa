//go:build unix

package procs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"runlog/testbed/await"
)

// The test binary is a webhook if asHook has an address, and writes what it gets to the file that
// sinkFile names. It is a server of NATS if asNATS has an address, with its data in sinkFile.
const (
	asHook   = "TEST_PROCS_HOOK"
	asNATS   = "TEST_PROCS_NATS"
	sinkFile = "TEST_PROCS_SINK_FILE"

	// hookTimeout is that of a request to the webhook. It is late for a part of that longer.
	hookTimeout = 800 * time.Millisecond
	hookLate    = hookTimeout * 5 / 4
	// natsLargest is the largest message that the stream takes, in bytes.
	natsLargest = 4 << 10
	natsStream  = "EVENTS"
	// natsDuplicates is for how long the stream knows the ids of messages.
	natsDuplicates = 90 * time.Second
	// natsStart is how long NATS waits for its own listener.
	natsStart = time.Hour

	// sinkListens is the line of a sink that listens.
	sinkListens = "the sink listens"
)

// What the payload of an event says of how the webhook answers.
const (
	answerOK    = "ok"
	answerLarge = "large" // always with 413
	answerError = "error" // with 500, once in each life
	answerBusy  = "busy"  // with 503 and Retry-After, once in each life
	answerLate  = "late"  // after the timeout, once in each life
)

// hook answers requests until it is killed. It writes a line for each before it answers.
func hook(address string) error {
	f, err := os.OpenFile(os.Getenv(sinkFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	once := make(chan map[string]bool, 1)
	once <- map[string]bool{}
	first := func(id string) bool {
		seen := <-once
		defer func() { once <- seen }()
		before := seen[id]
		seen[id] = true
		return !before
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stderr, sinkListens)
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		var e struct {
			ID, Subject, RunSeq string
			Data                struct{ Answer string }
		}
		if json.NewDecoder(r.Body).Decode(&e) != nil {
			return // The sender has ended.
		}
		code := http.StatusOK
		switch x := e.Data.Answer; {
		case x == answerLarge:
			code = http.StatusRequestEntityTooLarge
		case x == answerOK || !first(e.ID):
			Pass(5 * time.Millisecond)
		case x == answerError:
			code = http.StatusInternalServerError
		case x == answerBusy:
			w.Header().Set("Retry-After", "0")
			code = http.StatusServiceUnavailable
		case x == answerLate:
			Pass(hookLate)
		}
		_, _ = fmt.Fprintln(f, began.UnixNano(), time.Now().UnixNano(), code, e.Subject, e.RunSeq, ".")
		w.WriteHeader(code)
	}))
}

// natsNode is a server of NATS JetStream until it is killed.
func natsNode(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, _ := strconv.Atoi(port)
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: host, Port: number, JetStream: true, StoreDir: os.Getenv(sinkFile), SyncAlways: true, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(natsStart) {
		return fmt.Errorf("the server does not listen within %v", natsStart)
	}
	_, _ = fmt.Fprintln(os.Stderr, sinkListens)
	s.WaitForShutdown()
	return errors.New("the server has ended")
}

// sinkProcess is a sink. Each of its lives is a process.
type sinkProcess struct {
	t                 *testing.T
	as, address, file string
	log               string
	life              *process
}

// newSink starts a sink, which ends with the test.
func newSink(t *testing.T, as string) *sinkProcess {
	t.Helper()
	dir := t.TempDir()
	s := &sinkProcess{t: t, as: as, address: Reserve(t, 1)[0], file: filepath.Join(dir, "got"), log: filepath.Join(dir, "log")}
	s.start()
	t.Cleanup(func() { s.life.kill() })
	return s
}

// start starts the sink, and waits until it listens.
func (s *sinkProcess) start() {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), s.as+"="+s.address, sinkFile+"="+s.file)
	life, err := spawn(cmd, s.log, func(p *process) { s.t.Errorf("%s has ended by itself: %s", s.as, p.lastLine()) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.life = life
	if !life.words.Await(life.exited, await.Context(s.t).Done(), func(said string) bool { return strings.Contains(said, sinkListens) }) {
		s.t.Fatalf("%s does not listen: %s", s.as, life.lastLine())
	}
}

// pause stops the sink, and continues it after a time.
func (s *sinkProcess) pause(d time.Duration) {
	s.t.Helper()
	err := s.life.signal(syscall.SIGSTOP)
	Pass(d)
	if err = errors.Join(err, s.life.signal(syscall.SIGCONT)); err != nil {
		s.t.Error(err)
	}
}

// answered is a line of the webhook.
type answered struct {
	run          string
	seq          uint64
	code         int
	began, ended time.Time
}

// answers returns what the webhook has answered, in this order. The last line of a life may be cut.
func (s *sinkProcess) answers() (list []answered) {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 6 || f[5] != "." {
			s.t.Errorf("the webhook wrote %q", line)
			continue
		}
		number := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
		list = append(list, answered{
			run: f[3], seq: uint64(number(f[4])), code: int(number(f[2])), began: time.Unix(0, number(f[0])), ended: time.Unix(0, number(f[1])),
		})
	}
	return list
}

// stream makes the stream of a server of NATS.
func (s *sinkProcess) stream() {
	s.t.Helper()
	s.jetStream(func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: natsStream, Subjects: []string{"runlog.>"}, MaxMsgSize: natsLargest, Duplicates: natsDuplicates,
		})
		return err
	})
}

// place is an event, as sinks name it.
type place struct {
	run string
	seq uint64
}

// messages returns the events of the stream, in this order.
func (s *sinkProcess) messages() (list []place) {
	s.t.Helper()
	s.jetStream(func(ctx context.Context, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, natsStream)
		if err != nil {
			return err
		}
		for n := uint64(1); n <= st.CachedInfo().State.LastSeq; n++ {
			m, err := st.GetMsg(ctx, n)
			if err != nil {
				return fmt.Errorf("message %d: %w", n, err)
			}
			var e struct{ Subject, RunSeq string }
			if err := json.Unmarshal(m.Data, &e); err != nil {
				return err
			}
			seq, err := strconv.ParseUint(e.RunSeq, 10, 64)
			if err != nil {
				return err
			}
			list = append(list, place{e.Subject, seq})
		}
		return nil
	})
	return list
}

func (s *sinkProcess) jetStream(do func(context.Context, jetstream.JetStream) error) {
	s.t.Helper()
	ctx := await.Context(s.t)
	nc, err := natsgo.Connect("nats://"+s.address, natsgo.RetryOnFailedConnect(true))
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = do(ctx, js)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
