package server_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestExposureSEC1: a node that other machines reach needs TLS and authentication, or --insecure,
// which it warns of at every start. A refused node leaves no data directory.
func TestExposureSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		for name, c := range map[string]struct {
			change func(*server.Options)
			says   []string // nil: it may start
		}{
			"loopback":         {func(*server.Options) {}, nil},
			"localhost":        {func(o *server.Options) { o.GRPCListen, o.HTTPListen = "localhost:0", "[::1]:0" }, nil},
			"gRPC":             {func(o *server.Options) { o.GRPCListen = "0.0.0.0:0" }, []string{"--grpc-listen 0.0.0.0:0", "--tls-cert, --tls-key and --auth required", "--insecure"}},
			"HTTP":             {func(o *server.Options) { o.HTTPListen = ":0" }, []string{"--http-listen :0", "--insecure"}},
			"a name":           {func(o *server.Options) { o.HTTPListen = "localhost.example.com:0" }, []string{"--http-listen localhost.example.com:0"}},
			"IPv6":             {func(o *server.Options) { o.GRPCListen, o.HTTPListen = "[::]:0", "[::]:0" }, []string{"--grpc-listen", "--http-listen"}},
			"without TLS":      {func(o *server.Options) { o.GRPCListen = ":0"; servertest.Secured(o) }, []string{"plain text: add --tls-cert and --tls-key"}},
			"without identity": {func(o *server.Options) { o.GRPCListen = ":0"; a.withTLS(o) }, []string{"callers need no credentials: add --auth required"}},
			"with both":        {func(o *server.Options) { o.GRPCListen = ":0"; a.withTLS(o); servertest.Secured(o) }, nil},
			"admin":            {func(o *server.Options) { o.AdminListen = ":0"; a.withTLS(o); servertest.Secured(o) }, []string{"--admin-listen :0", "listen on loopback", "--metrics-listen", "--insecure"}},
			"metrics":          {func(o *server.Options) { o.MetricsListen = ":0"; servertest.Secured(o) }, []string{"--metrics-listen :0", "--tls-cert and --tls-key", "--insecure"}},
			"metrics with TLS": {func(o *server.Options) { o.MetricsListen = ":0"; a.withTLS(o) }, nil},
			"nodes":            {func(o *server.Options) { o.RaftListen = ":0" }, []string{"--raft-listen :0", "add --node-ca, --node-cert and --node-key", "--insecure"}},
			"nodes with TLS":   {func(o *server.Options) { o.RaftListen = ":0"; o.TLS = server.TLSFiles{Cert: "c", Key: "k", CA: "a"} }, nil},
			"--insecure": {func(o *server.Options) {
				o.GRPCListen, o.AdminListen, o.RaftListen, o.Insecure = ":0", ":0", ":0", true
			}, nil},
		} {
			o := servertest.Options(t)
			o.DataDir = filepath.Join(o.DataDir, "data")
			c.change(&o)
			if c.says == nil {
				if err := o.CheckExposure(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			_, err := server.Start(t.Context(), o)
			if err == nil {
				t.Fatalf("%s: the node starts", name)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v does not have %q", name, err, text)
				}
			}
			if _, err := o.FS.Stat(o.DataDir); err == nil {
				t.Errorf("%s: the data directory is made", name)
			}
		}

		var log lockedBuffer
		n := servertest.Start(t, func(o *server.Options) {
			o.HTTPListen, o.Insecure, o.Logger = "0.0.0.0:0", true, slog.New(slog.NewTextHandler(&log, nil))
		})
		n.Restart()
		if count := strings.Count(log.String(), "insecure node; other machines may reach it"); count != 2 {
			t.Errorf("%d warnings in two starts:\n%s", count, log.String())
		}
	})
}
