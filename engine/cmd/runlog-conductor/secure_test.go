package main

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"runlog/client/transport/certfile"
	"runlog/engine/program/programtest"
	"runlog/testbed/bubble"
)

// TestConductorTLSSEC1: the connection to Conductor has the authority, the client certificate and
// the server name of the flags. One that is made after the files have changed has the new ones.
func TestConductorTLSSEC1(t *testing.T) {
	t.Parallel()
	programtest.WantTLS(t, "conductor", func(files *certfile.Files[tls.Config], logger *slog.Logger) programtest.Secure {
		return (&secured{files, logger}).secure
	})
}

// TestConductorTokenSEC1: calls of Conductor have the value that is in the file of the flag now, on
// a connection that the flags secure.
func TestConductorTokenSEC1(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	of := programtest.NewAuthority(t)
	got := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header.Get("X-Authorization")
			_, _ = io.WriteString(w, `{"healthy":true}`)
		})}
	ended := make(chan struct{})
	go func() { _ = server.Serve(tls.NewListener(l, of.Server("conductor.example"))); close(ended) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	dir := t.TempDir()
	file, ca, own := filepath.Join(dir, "key"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	programtest.Write(t, file, "first\n")
	programtest.Write(t, ca, string(of.PEM))
	programtest.Write(t, own, string(of.Pair("worker")))
	a, err := parsed("capabilities --conductor https://" + l.Addr().String() + " --conductor-token-file " + file + " --conductor-cacert " + ca +
		" --conductor-cert " + own + " --conductor-server-name conductor.example")
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.conductor.dial(a.logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key := <-got; key != "first" {
		t.Errorf("Conductor got %q", key)
	}
}

// TestTokenChangesSEC1: the value of a file that changes is that of the next call. A file that
// cannot be used leaves the earlier value.
func TestTokenChangesSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "key")
		programtest.Write(t, file, "first")
		c := conductorFlags{url: "http://127.0.0.1:8080", tokenFile: file}
		value, err := c.credential(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ text, want string }{{"", "first"}, {"two\nlines", "first"}, {"second", "second"}} {
			programtest.Write(t, file, tt.text)
			time.Sleep(time.Second)
			if got := value(); got != tt.want {
				t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
			}
		}
	})
}
