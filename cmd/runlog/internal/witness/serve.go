package witness

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
	"runlog/audit/witness"
	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"
)

const (
	// requestTimeout bounds a request: it is small, and costs one write.
	requestTimeout = 30 * time.Second
	// drainTimeout is how long requests in flight may take when the witness stops.
	drainTimeout = 5 * time.Second
)

type serveOptions struct {
	listen, state, keyFile string
	name, keyType          string // of a new key
	tlsCert, tlsKey        string
	logs                   []string
}

func (a *app) serveCommand() *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a witness",
		Long: `Run a witness (C2SP tlog-witness). It signs a checkpoint if one of the keys of --key has signed it, and if the request
proves that it continues the last one that the witness has signed of this log.

--state names the file with the last checkpoint of each log, and --key-file that with the witness's secret key. Both are made if
they do not exist. Back up neither: a witness that goes back to an older state could sign another history. If the state is lost,
begin with another name and key.

The first line of the output is the witness's public key. Give it to those who verify.`,
		Example: "  runlog witness serve --name witness.example/acme --state acme.state --key-file acme.key --key cluster.pub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), &opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.listen, "listen", "127.0.0.1:7420", "address of HTTP")
	f.StringVar(&opts.state, "state", "", "file with the last checkpoint of each log")
	f.StringVar(&opts.keyFile, "key-file", "", "file with the secret key")
	f.StringVar(&opts.name, "name", "", "name of a new key: a URL without its scheme that is yours, such as witness.example/acme")
	f.StringVar(&opts.keyType, "key-type", "", "type of a new key: "+proof.KeyEd25519+" (default) or "+proof.KeyMLDSA44)
	f.StringVar(&opts.tlsCert, "tls-cert", "", "PEM file with the certificate; without one, HTTP is not encrypted")
	f.StringVar(&opts.tlsKey, "tls-key", "", "PEM file with the key of the certificate")
	signingkey.Flag(cmd, &opts.logs)
	return cmd
}

func (a *app) serve(ctx context.Context, opts *serveOptions) error {
	for _, flag := range [][2]string{{"state", opts.state}, {"key-file", opts.keyFile}, {"key", strings.Join(opts.logs, "")}} {
		if flag[1] == "" {
			return output.UsageError("--%s is required", flag[0])
		}
	}
	cosigner, err := openKey(opts.keyFile, opts.name, opts.keyType)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.Stderr, nil))
	w, err := witness.New(witness.Options{Cosigner: cosigner, Logs: opts.logs, State: opts.state, Clock: time.Now, Logger: log})
	if errors.Is(err, witness.ErrState) {
		return output.Errorf(output.ExitFailed, "%s: %v; keep the file, and begin with another --state, --key-file and --name", opts.state, err)
	}
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.listen)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	fmt.Fprintln(a.Stdout, cosigner.Key())
	log.Info("ready", "address", listener.Addr(), "key", cosigner.Key(), "logs", len(opts.logs))
	return errors.Join(run(ctx, listener, w, opts), w.Close())
}

// run serves until the context ends.
func run(ctx context.Context, l net.Listener, w *witness.Witness, opts *serveOptions) error {
	s := &http.Server{Handler: w, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, MaxHeaderBytes: 16 << 10}
	done := make(chan error, 1)
	go func() {
		if opts.tlsCert != "" {
			done <- s.ServeTLS(l, opts.tlsCert, opts.tlsKey)
		} else {
			done <- s.Serve(l)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return s.Shutdown(stopping)
}

// openKey reads the secret key, or makes one of the name and the type.
func openKey(path, name, keyType string) (*proof.Cosigner, error) {
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		c, err := proof.ParseCosigner(strings.TrimSuffix(string(text), "\n"))
		if err == nil && name != "" && c.Key().Name() != name {
			err = fmt.Errorf("it is the key of %s, not of %s", c.Key().Name(), name)
		}
		if err == nil && keyType != "" && c.Key().Type() != keyType {
			err = fmt.Errorf("it is a key of the type %s, not %s", c.Key().Type(), keyType)
		}
		if err != nil {
			return nil, output.UsageError("%s: %v", path, err)
		}
		return c, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case name == "":
		return nil, output.UsageError("--name is required: %s does not exist, and a new key needs a name", path)
	}
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // It never fails.
	keyType = cmp.Or(keyType, proof.KeyEd25519)
	c, err := proof.NewCosignerOfType(keyType, name, seed)
	if err != nil {
		return nil, output.UsageError("--name %s --key-type %s: %v", name, keyType, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(c.Private() + "\n")
	if err == nil {
		err = file.Sync()
	}
	return c, errors.Join(err, file.Close())
}
