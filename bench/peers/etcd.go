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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	etcdCommand = "serve-etcd"
	childStart  = 30 * time.Second

	// A request of 1,000 events needs more than the 128 operations that etcd allows a transaction
	// by itself.
	etcdTxnOps     = 4096
	etcdQuotaBytes = 8 << 30
)

// etcd is one member or several that make a cluster, each in a process of its own. The client talks
// to the one that leads.
type etcd struct {
	members []member
	client  *clientv3.Client
	form    etcdForm
	leader  leadership // when it was opened

	mu    sync.Mutex
	heads map[string]int64 // last runSeq of the runs that this adapter has appended to
}

// member is a process of etcd and where it serves clients.
type member struct {
	process *target.Process
	address string
}

// openEtcd starts so many members and connects to the one that leads.
func openEtcd(form etcdForm, nodes int) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		e := &etcd{form: form, heads: make(map[string]int64)}
		err := e.start(dir, nodes)
		if err == nil {
			err = e.connect(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		return e, nil
	}
}

func (e *etcd) start(dir string, nodes int) error {
	binary, err1 := os.Executable()
	addresses, err2 := target.FreeAddresses(2 * nodes)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	clients, peers := addresses[:nodes], addresses[nodes:]
	var cluster []string
	for i, peer := range peers {
		cluster = append(cluster, memberName(i)+"=http://"+peer)
	}
	for i := range nodes {
		name := memberName(i)
		process, err := target.StartProcess(filepath.Join(dir, name+".log"), exec.Command(binary, etcdCommand,
			filepath.Join(dir, name), name, clients[i], peers[i], strings.Join(cluster, ",")))
		if err != nil {
			return err
		}
		e.members = append(e.members, member{process, clients[i]})
	}
	return nil
}

func memberName(i int) string { return "member-" + strconv.Itoa(i+1) }

// connect waits until every member serves, and talks to the one that leads from then on.
func (e *etcd) connect(ctx context.Context) error {
	for _, m := range e.members {
		c, err := dialEtcd(m.address)
		if err != nil {
			return err
		}
		err = m.process.Wait(ctx, childStart, func() bool {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, err := c.Get(ctx, "ready")
			return err == nil
		})
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return e.findLeader(ctx)
}

func dialEtcd(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
}

// serveEtcd is the child process. Every default of etcd stands, but for room: log entries are
// synced before a transaction is answered.
func serveEtcd(dir, name, client, peer, cluster string) error {
	c := embed.NewConfig()
	c.Dir, c.Name, c.LogLevel = dir, name, "error"
	clients, err1 := url.Parse("http://" + client)
	member, err2 := url.Parse("http://" + peer)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*member}, []url.URL{*member}
	c.InitialCluster = cluster
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
func (e *etcd) Describe() []report.Fact {
	members := "one member"
	if n := len(e.members); n > 1 {
		members = fmt.Sprintf("%d members, each a process of its own on this machine, all data on one disk; calls to the leader", n)
	}
	return []report.Fact{
		{Name: "version", Value: "etcd " + version.Version},
		{Name: "settings", Value: fmt.Sprintf("%s, max-txn-ops=%d quota-backend-bytes=%d max-request-bytes=16MiB", members, etcdTxnOps, int64(etcdQuotaBytes))},
		{Name: "adapter", Value: e.form.name},
	}
}

// Close stops the members.
func (e *etcd) Close() error {
	var errs []error
	if e.client != nil {
		errs = append(errs, e.client.Close())
	}
	for _, m := range e.members {
		errs = append(errs, m.process.Stop())
	}
	return errors.Join(errs...)
}
