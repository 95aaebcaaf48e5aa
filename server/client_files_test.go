package server_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/contexts"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestClientFilesReload: a client that runs for long, such as a runner, has the authorities and the
// certificate that are in its files, without a restart. Its connection does not outlive the
// certificate, whose calls a node refuses then. Files that cannot be used leave the old ones, and
// the log says so.
func TestClientFilesReload(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		first, second := newAuthority(t), newAuthority(t)
		n := servertest.Start(t, func(o *server.Options) {
			servertest.Secured(o)
			first.withTLS(o)
			o.Access.Certificates = []auth.CertificateRule{{Subject: "CN=*,O=acme", Tenants: []string{"acme"}, Roles: []string{"reader"}}}
		})
		dir := t.TempDir()
		to := contexts.Connection{Server: "https://" + n.Server.Addresses().GRPC,
			CACert: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), CertKey: filepath.Join(dir, "tls.key")}
		files := server.TLSFiles{CA: to.CACert, Cert: to.Cert, Key: to.CertKey}
		write := func(a *authority, name string) {
			a.writePair(files, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"acme"}},
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: time.Now().Add(10 * time.Minute)})
		}
		write(first, "engine-1")
		var log bytes.Buffer
		opts := client.Options{DialOptions: []grpc.DialOption{n.Dialer()}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		var err error
		if opts.TLSFiles, err = to.TLSFiles(true); err != nil {
			t.Fatal(err)
		}
		c, err := client.Dial(to.Server, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		who := func() string {
			t.Helper()
			got, err := c.WhoAmI(n.Context())
			if err != nil {
				return err.Error()
			}
			return got.Name
		}
		servertest.WantEqual(t, "identity", who(), "cert:CN=engine-1,O=acme")
		write(first, "engine-2")
		first.writePEM(files.Cert, "CERTIFICATE", nil)
		time.Sleep(10*time.Minute - 30*time.Second)
		servertest.WantEqual(t, "identity with a broken file", who(), "cert:CN=engine-1,O=acme")
		if warning := "cannot reload client certificates"; strings.Count(log.String(), warning) != 1 {
			t.Errorf("the log is without one %q:\n%s", warning, log.String())
		}
		write(first, "engine-2")
		time.Sleep(time.Minute)
		servertest.WantEqual(t, "identity after the end of the certificate", who(), "cert:CN=engine-2,O=acme")
		second.write(n.Opts.ClientTLS, "second")
		write(second, "engine-3")
		time.Sleep(9 * time.Minute)
		servertest.WantEqual(t, "identity with other authorities", who(), "cert:CN=engine-3,O=acme")
	})
}

// TestTokenFilesSEC5: a client that stays up has the token that is in its file, without a restart.
// Once the earlier token is revoked, its calls, its watches and its appends go on with the later
// one. A file that cannot be used leaves the token in place, and the log says so. If the token of
// the file itself is refused, the calls and the watches end.
func TestTokenFilesSEC5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		path := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			t.Helper()
			if err := errors.Join(os.WriteFile(path+".next", []byte(text), 0o600), os.Rename(path+".next", path)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		token := func(name string) string {
			return n.Token(root, name, []string{"tenant"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER)
		}
		revoke := func(name string) {
			t.Helper()
			list, err := n.Access().ListTokens(n.Bearing(root), &runlogv1.ListTokensRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list.GetTokens() {
				if x.GetName() == name {
					_, err = n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: x.GetTokenId()})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(token("first"))
		to := contexts.Connection{Server: n.Server.Addresses().GRPC, TokenFile: path}
		var log lockedBuffer
		opts := client.Options{DialOptions: []grpc.DialOption{n.Dialer()}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Insecure: true}
		var err error
		if opts.TokenFiles, err = to.TokenFiles(); err != nil {
			t.Fatal(err)
		}
		c, err := client.Dial(to.Server, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		who := func() string {
			t.Helper()
			got, err := c.WhoAmI(n.Context())
			if err != nil {
				return err.Error()
			}
			return got.Name
		}
		appender, err := c.NewAppender(client.AppenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		appends := func(step string) {
			t.Helper()
			e := servertest.Steps(step, 1)[0]
			if e.RunId = "run"; err == nil {
				_, err = appender.Append(n.Context(), e)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		appends("a")
		seen, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			for m, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT}) {
				if err != nil {
					ended <- err
					return
				}
				for _, e := range m.GetEvents().GetEvents() {
					seen <- e.GetStepId()
				}
			}
		}()
		next := func() string {
			select {
			case step := <-seen:
				return step
			case err := <-ended:
				t.Fatal(err)
				return ""
			}
		}
		servertest.WantEqual(t, "the watch", next(), "a0")
		servertest.WantEqual(t, "identity", who(), "token:first")
		write(token("second"))
		servertest.WantEqual(t, "identity with another file", who(), "token:second")
		revoke("first")
		for i := range 60 { // A node looks at its streams every 30 s.
			step := fmt.Sprint("b", i)
			appends(step)
			servertest.WantEqual(t, "the watch after the revocation", next(), step+"0")
			time.Sleep(time.Second)
		}
		write("a token with blanks")
		servertest.WantEqual(t, "identity with a broken file", who(), "token:second")
		if warning := "cannot reload the tokens of --token-file"; strings.Count(log.String(), warning) != 1 {
			t.Errorf("the log is without one %q:\n%s", warning, log.String())
		}
		revoke("second")
		if got := who(); !strings.HasPrefix(got, "UNAUTHENTICATED") {
			t.Errorf("identity with a revoked token: %s", got)
		}
		if err := <-ended; !strings.HasPrefix(err.Error(), "UNAUTHENTICATED") {
			t.Errorf("the watch with a revoked token: %v", err)
		}
		write(token("third"))
		servertest.WantEqual(t, "identity with a third file", who(), "token:third")
		appends("c")
	})
}
