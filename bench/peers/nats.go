package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	natsCommand = "serve-nats"
	// natsWindow is how long message ids are remembered, in memory: far longer than a run of the
	// bench takes.
	natsWindow = 7 * 24 * time.Hour
	natsConns  = 4
	natsEnd    = 10 * time.Second
	// When a server syncs what it has stored.
	natsSyncsAlways = "always"
	natsSyncsSeldom = "default"
)

// jetStream is a server of its own, in a process of its own.
type jetStream struct {
	process *target.Process
	conns   []*nats.Conn
	streams []jetstream.JetStream // one for each connection
	form    natsForm
	shards  int
}

// openNATS starts a server and makes shards streams.
func openNATS(form natsForm, shards int) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		j := &jetStream{form: form, shards: shards}
		process, port, err := startChild(dir, natsCommand, natsSyncsAlways, filepath.Join(dir, "data"))
		j.process = process
		if err == nil {
			err = j.connect(ctx, "nats://127.0.0.1:"+port)
		}
		if err != nil {
			return nil, errors.Join(err, j.Close())
		}
		return j, nil
	}
}

func (j *jetStream) connect(ctx context.Context, url string) error {
	for range natsConns {
		conn, err := dialNATS(ctx, j.process, url)
		if err != nil {
			return err
		}
		j.conns = append(j.conns, conn)
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		j.streams = append(j.streams, js)
	}
	for shard := range j.shards {
		_, err := j.streams[0].CreateStream(ctx, jetstream.StreamConfig{
			Name: "runs-" + strconv.Itoa(shard), Subjects: []string{subject(shard, ">")},
			Storage: jetstream.FileStorage, Replicas: 1, Retention: jetstream.LimitsPolicy,
			Duplicates: natsWindow, AllowAtomicPublish: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dialNATS waits for a server, and connects.
func dialNATS(ctx context.Context, p *target.Process, url string) (conn *nats.Conn, err error) {
	err = p.Wait(ctx, childStart, func() bool {
		c, err := nats.Connect(url, nats.MaxReconnects(0))
		conn = c
		return err == nil
	})
	return conn, err
}

// serveNATS is the child process.
func serveNATS(syncs, dir, port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n, JetStream: true, StoreDir: dir, NoSigs: true,
		// Always: every message is on stable storage before it is acknowledged.
		SyncAlways: syncs == natsSyncsAlways,
	})
	if err != nil {
		return err
	}
	s.SetLogger(stderrLog{}, false, false)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// stderrLog keeps what a failed start has to say.
type stderrLog struct{}

func (stderrLog) Noticef(string, ...any) {}
func (stderrLog) Debugf(string, ...any)  {}
func (stderrLog) Tracef(string, ...any)  {}

func (stderrLog) Warnf(format string, args ...any)  { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (stderrLog) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (stderrLog) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// Describe names the version and every setting that is not the default.
func (j *jetStream) Describe() []report.Fact {
	return []report.Fact{
		{Name: "version", Value: "nats-server " + server.VERSION},
		{Name: "settings", Value: fmt.Sprintf("one server, sync_interval=always; %d streams on files, 1 replica, duplicate window %v", j.shards, natsWindow)},
		{Name: "adapter", Value: fmt.Sprintf("%d connections, batches by %s", len(j.conns), j.form.name)},
	}
}

// Close ends the connections and the server.
func (j *jetStream) Close() error {
	for _, c := range j.conns {
		c.Close()
	}
	if j.process == nil {
		return nil
	}
	return j.process.Stop()
}
