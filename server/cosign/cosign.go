package cosign

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/policy"
	"runlog/audit/witness"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

const (
	// step is the time between two looks at the newest checkpoint.
	step = time.Second
	// askTimeout bounds how long a witness may take for an answer.
	askTimeout = 30 * time.Second
	// firstRetry and lastRetry are the least and the longest time until a witness that did not sign
	// is asked again.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// Patience is how long a witness may lack the newest checkpoint before AlertBehind is raised.
	Patience = 10 * time.Minute
)

const (
	// AlertBehind is raised at the leader while a witness has not signed for longer than Patience.
	AlertBehind = "WITNESS_BEHIND"
	// AlertConflict is raised at the leader while a witness says that it has signed another tree.
	AlertConflict = "WITNESS_CONFLICT"
)

// Alerts takes the alerts that are raised on this node.
type Alerts interface{ Set(name string, on bool) }

// Options of a Cosigner. All are required.
type Options struct {
	Store *storage.Store
	// Witnesses are asked, each under its name in a policy.
	Witnesses []policy.Endpoint
	// Leading reports whether the node leads.
	Leading func() bool
	// ReadIndex returns once the store has all that was acknowledged anywhere before the call.
	ReadIndex func(context.Context) error
	// Propose proposes a command and returns its outcome.
	Propose func(context.Context, storage.Command) (storage.Outcome, error)
	// Prove returns the proof that the tree of records of one size continues that of an earlier
	// one.
	Prove func(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error)
	// Transport makes the requests to witnesses.
	Transport http.RoundTripper
	Alerts    Alerts
	Logger    *slog.Logger
	Registry  *prometheus.Registry
}

// Check returns what is wrong with the witnesses of a node.
func Check(list []policy.Endpoint) error {
	if len(list) > signing.MaxCosignatures {
		return fmt.Errorf("%d witnesses are more than %d", len(list), signing.MaxCosignatures)
	}
	return nil
}

// Cosigner has the witnesses sign while the node leads. Close ends it.
type Cosigner struct {
	report *report
	stop   context.CancelFunc
	loops  sync.WaitGroup
}

// New starts to ask the witnesses.
func New(opts Options) *Cosigner {
	c := &Cosigner{report: newReport(&opts)}
	stopping, stop := context.WithCancel(context.Background())
	c.stop = stop
	for _, w := range opts.Witnesses {
		a := &asker{
			opts: &opts, name: w.Name, report: c.report, log: opts.Logger.With("witness", w.Name),
			client: witness.Client{URL: w.URL, Key: w.Key, HTTP: &http.Client{Transport: opts.Transport, Timeout: askTimeout, CheckRedirect: noRedirect}},
		}
		c.loops.Go(func() { a.run(stopping) })
	}
	return c
}

// noRedirect keeps a witness from sending the node to another address.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close stops to ask. The store must still be open.
func (c *Cosigner) Close() error {
	c.stop()
	c.loops.Wait()
	c.report.close()
	return nil
}
