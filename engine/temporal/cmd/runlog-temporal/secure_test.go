package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"runlog/client/transport/certfile"
	"runlog/engine/program/programtest"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestTemporalTLSSEC1: the connection to Temporal has the authority, the client certificate and the
// server name of the flags. A connection that is made after the files have changed has the new
// ones; files that cannot be used leave the earlier ones.
func TestTemporalTLSSEC1(t *testing.T) {
	t.Parallel()
	programtest.WantTLS(t, "temporal", func(files *certfile.Files[tls.Config], logger *slog.Logger) programtest.Secure {
		return func(ctx context.Context, conn net.Conn, server string) (net.Conn, error) {
			conn, _, err := (&reloading{files, logger}).ClientHandshake(ctx, server, conn)
			return conn, err
		}
	})
}

// frontend notes the credentials of calls.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	keys chan string
}

// CountWorkflowExecutions answers the ping of an engine.
func (f frontend) CountWorkflowExecutions(ctx context.Context, _ *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.keys <- strings.Join(md.Get("authorization"), " ")
	return &workflowservice.CountWorkflowExecutionsResponse{}, nil
}

// TestTemporalAPIKeySEC1: calls of Temporal have the API key that is in the file now, on a
// connection that the flags secure. The key leaves this machine over TLS alone.
func TestTemporalAPIKeySEC1(t *testing.T) {
	t.Parallel()
	a := programtest.NewAuthority(t)
	f := frontend{keys: make(chan string, 1)}
	address := programtest.ServeGRPC(t, func(s grpc.ServiceRegistrar) { workflowservice.RegisterWorkflowServiceServer(s, f) },
		grpc.Creds(credentials.NewTLS(a.Server("temporal.example"))))
	dir := t.TempDir()
	file, ca, own := filepath.Join(dir, "key"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	programtest.Write(t, file, "first\n")
	programtest.Write(t, ca, string(a.PEM))
	programtest.Write(t, own, string(a.Pair("worker")))
	e, err := configured(t, "sweep --temporal "+address+" --temporal-api-key-file "+file+" --temporal-cacert "+ca+" --temporal-cert "+own+
		" --temporal-server-name temporal.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		programtest.Write(t, file, key+"\n")
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-f.keys; got != "Bearer "+key {
			t.Errorf("got %q, want the key %s", got, key)
		}
	}
	for server, secure := range map[string]bool{"127.0.0.1:7233": false, "acme.tmprl.example:7233": true} {
		var o sdkclient.Options
		o.HostPort = server
		if err := (&security{apiKey: file}).apply(&o, slog.Default()); err != nil || (o.ConnectionOptions.TLS != nil) != secure {
			t.Errorf("%s: TLS %v, %v", server, o.ConnectionOptions.TLS != nil, err)
		}
	}
}

// access is the service that names its callers.
type access struct {
	runlogv1.UnimplementedAccessServiceServer
}

// WhoAmI answers with the name in the client certificate.
func (access) WhoAmI(ctx context.Context, _ *runlogv1.WhoAmIRequest) (*runlogv1.WhoAmIResponse, error) {
	p, _ := peer.FromContext(ctx)
	return &runlogv1.WhoAmIResponse{Name: p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName}, nil
}

// TestNodeTLSSEC1: the connection to runlog has the authority and the client certificate of the
// flags. Without them there is none.
func TestNodeTLSSEC1(t *testing.T) {
	t.Parallel()
	of := programtest.NewAuthority(t)
	address := programtest.ServeGRPC(t, func(s grpc.ServiceRegistrar) { runlogv1.RegisterAccessServiceServer(s, access{}) },
		grpc.Creds(credentials.NewTLS(of.Server("localhost"))))
	dir := t.TempDir()
	ca, own := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	programtest.Write(t, ca, string(of.PEM))
	programtest.Write(t, own, string(of.Pair("worker")))
	_, port, _ := net.SplitHostPort(address)
	for flags, want := range map[string]string{"--cacert " + ca + " --cert " + own: "worker", "--cacert " + ca: "", "--cert " + own: "", "": ""} {
		a, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields("sweep --server localhost:"+port+" "+flags))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.dial(); err != nil {
			t.Fatal(err)
		}
		who, err := a.log.WhoAmI(t.Context())
		a.close()
		if who.GetName() != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v, want %q", flags, who, err, want)
		}
	}
}

// TestTemporalSecurityFaults: each fault of the flags of the connection to Temporal names its flag.
func TestTemporalSecurityFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, open, leaf := filepath.Join(dir, "empty"), filepath.Join(dir, "open"), filepath.Join(dir, "leaf")
	programtest.Write(t, empty, "")
	programtest.Write(t, leaf, string(programtest.NewAuthority(t).Pair("worker")))
	programtest.Write(t, open, "key")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--cert-key " + leaf:                       "--cert-key needs cert",
		"--cacert " + dir + "/none":                "--cacert: open",
		"--cert " + empty:                          "--cert " + empty,
		"--server https://a,b":                     "--server: ",
		"--temporal-cert-key " + leaf:              "--temporal-cert-key needs --temporal-cert",
		"--temporal-cacert " + dir + "/none":       dir + "/none",
		"--temporal-cacert " + empty:               "--temporal-cacert " + empty + " holds no certificate",
		"--temporal-cacert " + leaf:                "of no certificate authority",
		"--temporal-cert " + empty:                 "--temporal-cert " + empty,
		"--temporal-api-key-file " + empty:         "--temporal-api-key-file " + empty + ": it is empty",
		"--temporal-api-key-file " + open:          "other users can read it",
		"--temporal-api-key-file " + dir + "/none": "--temporal-api-key-file: open",
	} {
		_, err := configured(t, "sweep "+line)
		programtest.WantError(t, line, err, want)
	}
}
