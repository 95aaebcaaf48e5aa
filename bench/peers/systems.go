package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"runlog/bench/report"
	"runlog/bench/target"
)

// common is what the systems need to be opened.
type common struct {
	runlogBinary     string
	connections      int    // to runlog
	postgresSettings string // to try
	nodes            int    // of each system
}

// kind of system that can be compared.
type kind struct {
	name, about string
	sparse      bool
	// usual is the size of what NAME@N changes: the connections to PostgreSQL, the streams of NATS.
	// It was the fastest. 0: nothing can be changed.
	usual int
	// clusters tells that it can have several nodes.
	clusters bool
	open     func(c *common, size int) func(context.Context, string) (target.Target, error)
}

// kinds lists the systems; those behind the fourth are other forms of the ones before, to try.
func kinds() []kind {
	type opener = func(context.Context, string) (target.Target, error)
	postgres := func(form batchForm) func(*common, int) opener {
		return func(c *common, size int) opener { return openPostgres(form, size, c.postgresSettings) }
	}
	etcd := func(form etcdForm) func(*common, int) opener {
		return func(c *common, _ int) opener { return openEtcd(form, c.nodes) }
	}
	nats := func(form natsForm) func(*common, int) opener {
		return func(_ *common, size int) opener { return openNATS(form, size) }
	}
	return []kind{
		{name: "runlog", about: "a node with its defaults", clusters: true, open: openRunlog},
		{name: "postgres", about: "PostgreSQL 15, batches by " + unnest.name, usual: 32, open: postgres(unnest)},
		{name: "etcd", about: "etcd 3.6, " + counted.name, clusters: true, open: etcd(counted)},
		{name: "nats", about: "NATS JetStream, batches by " + atomicPublish.name, sparse: true, usual: 8, open: nats(atomicPublish)},
		{name: "postgres-pipeline", about: "batches by " + pipelined.name, usual: 32, open: postgres(pipelined)},
		{name: "postgres-copy", about: "batches by " + copied.name, usual: 32, open: postgres(copied)},
		{name: "etcd-revision", about: revised.name, sparse: true, clusters: true, open: etcd(revised)},
		{name: "nats-async", about: "batches by " + asyncPublish.name, sparse: true, usual: 8, open: nats(asyncPublish)},
	}
}

// usualSystems are those that the goals are about.
func usualSystems(nodes int) string {
	var names []string
	for _, k := range kinds()[:4] {
		if nodes == 1 || k.clusters {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ",")
}

// maxSize of NAME@N: what PostgreSQL is set up for, but for its own connections.
const maxSize = 290

// systemsOf reads their names: NAME or NAME@N.
func systemsOf(names []string, c *common) ([]target.System, error) {
	var out []target.System
	for _, text := range names {
		name, number, sized := strings.Cut(text, "@")
		all := kinds()
		at := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
		if at < 0 {
			var known []string
			for _, k := range all {
				known = append(known, k.name)
			}
			return nil, fmt.Errorf("no system %q, there are %s", name, strings.Join(known, ", "))
		}
		k := &all[at]
		size := k.usual
		if sized {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > maxSize || k.usual == 0 {
				return nil, fmt.Errorf("%q: N after @ is 1 to %d, of postgres its connections, of nats its streams; others have none", text, maxSize)
			}
			size = n
		}
		if c.nodes > 1 && !k.clusters {
			return nil, fmt.Errorf("%s is compared as one server; with --nodes leave it out of --systems", name)
		}
		if strings.HasPrefix(name, "postgres") {
			if _, err := postgresBin(); err != nil {
				return nil, err
			}
		}
		out = append(out, target.System{Name: text, Open: k.open(c, size), Sparse: k.sparse})
	}
	return out, nil
}

// runlogNode is a node that can say which one it is.
type runlogNode struct {
	*target.Node
	version string
	dir     string // for receivers
}

// Describe names the version; every setting is the default.
func (n runlogNode) Describe() []report.Fact {
	return []report.Fact{{Name: "version", Value: n.version}, {Name: "settings", Value: "one node, its defaults"}}
}

// runlogCluster is a cluster that can say so too.
type runlogCluster struct {
	*target.Cluster
	version string
}

// Describe names the version and the nodes; every setting is the default.
func (c runlogCluster) Describe() []report.Fact {
	return append([]report.Fact{{Name: "version", Value: c.version}}, c.Cluster.Describe()...)
}

func openRunlog(c *common, _ int) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		binary, err := filepath.Abs(c.runlogBinary)
		if err != nil {
			return nil, err
		}
		version, err := exec.CommandContext(ctx, binary, "version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s version: %w; make build makes it, or name another with --runlog", c.runlogBinary, err)
		}
		if c.nodes > 1 {
			cluster, err := target.StartCluster(ctx, target.ClusterOptions{Binary: binary, Dir: dir, Nodes: c.nodes, Connections: c.connections})
			if err != nil {
				return nil, err
			}
			return runlogCluster{cluster, strings.TrimSpace(string(version))}, nil
		}
		n, err := target.StartNode(ctx, target.NodeOptions{Binary: binary, Dir: dir, Connections: c.connections})
		if err != nil {
			return nil, err
		}
		return runlogNode{n, strings.TrimSpace(string(version)), dir}, nil
	}
}
