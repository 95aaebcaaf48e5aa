package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"runlog/bench"
)

const (
	etcdCommand = "serve-etcd"
	childStart  = 30 * time.Second

	// A request of 1,000 events needs more than the 128 operations that etcd allows a transaction by itself.
	etcdTxnOps     = 4096
	etcdQuotaBytes = 8 << 30
)

// etcd is a member of its own, in a process of its own.
type etcd struct {
	process *bench.Process
	client  *clientv3.Client
	form    etcdForm

	mu    sync.Mutex
	heads map[string]int64 // last runSeq of the runs that this adapter has appended to
}

// openEtcd starts a member and connects to it.
func openEtcd(form etcdForm) func(context.Context, string) (bench.Target, error) {
	return func(ctx context.Context, dir string) (bench.Target, error) {
		port, err1 := freePort()
		peer, err2 := freePort()
		binary, err3 := os.Executable()
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		e := &etcd{form: form, heads: make(map[string]int64)}
		e.process, err1 = bench.StartProcess(filepath.Join(dir, "log"), exec.Command(binary, etcdCommand, filepath.Join(dir, "data"), port, peer))
		if err1 == nil {
			err1 = e.connect(ctx, "127.0.0.1:"+port)
		}
		if err1 != nil {
			return nil, errors.Join(err1, e.Close())
		}
		return e, nil
	}
}

func (e *etcd) connect(ctx context.Context, address string) error {
	var err error
	e.client, err = clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	return e.process.Wait(ctx, childStart, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := e.client.Get(ctx, "ready")
		return err == nil
	})
}

// serveEtcd is the child process. Every default of etcd stands, but for room: log entries are synced before a
// transaction is answered.
func serveEtcd(dir, port, peer string) error {
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	client, err1 := url.Parse("http://127.0.0.1:" + port)
	member, err2 := url.Parse("http://127.0.0.1:" + peer)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*member}, []url.URL{*member}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.MaxTxnOps, c.QuotaBackendBytes, c.MaxRequestBytes = etcdTxnOps, etcdQuotaBytes, 16<<20
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return err
	}
}

// Describe names the version and every setting that is not the default.
func (e *etcd) Describe() []bench.Fact {
	return []bench.Fact{
		{Name: "version", Value: "etcd " + version.Version},
		{Name: "settings", Value: fmt.Sprintf("one member, max-txn-ops=%d quota-backend-bytes=%d max-request-bytes=16MiB", etcdTxnOps, int64(etcdQuotaBytes))},
		{Name: "adapter", Value: e.form.name},
	}
}

// Close stops the member.
func (e *etcd) Close() error {
	var errs []error
	if e.client != nil {
		errs = append(errs, e.client.Close())
	}
	if e.process != nil {
		errs = append(errs, e.process.Stop())
	}
	return errors.Join(errs...)
}
