package server_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/contexts"
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
