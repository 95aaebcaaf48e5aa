package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"runlog/client/transport/certfile"
	runlogv1 "runlog/proto/runlog/v1"
)

// Defaults of Options.
const (
	DefaultMinBackoff = 100 * time.Millisecond
	DefaultMaxBackoff = time.Second
)

// maxAnswerBytes bounds one answer: a page of 1,000 events of the default payload limit (64 KiB).
const maxAnswerBytes = 64 << 20

// Options of a Client. The zero value works.
type Options struct {
	// MaxAttempts bounds the tries of one call, the first included. 0: the context and Timeout
	// bound them.
	MaxAttempts int
	// FirstAttempts bounds the tries for as long as no server has ever answered this client: a
	// mistyped address does not get better by waiting. Each address is tried once at least, as long
	// as MaxAttempts allows. 0 means MaxAttempts.
	FirstAttempts int
	// MinBackoff is the wait before the second try, doubled for each further one up to MaxBackoff.
	// 0 means DefaultMinBackoff and DefaultMaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// Timeout bounds one call with all its tries. On a stream (read, export, backup) it bounds the
	// silence between two messages, and the time to resume after a break. It does not bound a
	// watch. 0: only the context bounds them.
	Timeout time.Duration
	// TLS secures the connections, also to addresses without https://. nil: plain text, or TLS with
	// the system's authorities if the addresses begin with https://.
	TLS *tls.Config
	// TLSFiles replace TLS, from contexts.Connection.TLSFiles: each connection has the TLS of the
	// files as they are then, and ends before its certificate does. nil: TLS does not change.
	TLSFiles *certfile.Files[tls.Config]
	// Token is sent with every call: an API token or an access token; see contexts.ReadSecret.
	Token string
	// TokenFiles replace Token, from contexts.Connection.TokenFiles: each call has the token of the
	// file as it is then. A call or a stream that is refused with a token which was replaced
	// meanwhile is tried again. nil: Token does not change.
	TokenFiles *certfile.Files[string]
	// Insecure allows a token to leave this machine in plain text.
	Insecure bool
	// DialOptions follow this package's own and override them: dialers, interceptors.
	DialOptions []grpc.DialOption
	// Logger gets retries: the first ones at level debug. A failure that lasts is logged at level
	// warn when it begins, then seldom, and at level info when a call that has met it succeeds.
	// nil: none.
	Logger *slog.Logger
	// Observer sees calls, retries and appends. nil: nothing does.
	Observer Observer
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.MinBackoff == 0 {
		o.MinBackoff = DefaultMinBackoff
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = max(DefaultMaxBackoff, o.MinBackoff)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.TLSFiles != nil {
		o.TLS = o.TLSFiles.Last()
	}
	if o.TokenFiles != nil {
		o.Token = *o.TokenFiles.Last()
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	if o.MaxAttempts < 0 {
		faults = append(faults, fmt.Errorf("client: MaxAttempts is %d, want 0 or more", o.MaxAttempts))
	}
	if o.FirstAttempts < 0 {
		faults = append(faults, fmt.Errorf("client: FirstAttempts is %d, want 0 or more", o.FirstAttempts))
	}
	if o.MinBackoff < 0 || o.MaxBackoff < o.MinBackoff {
		faults = append(faults, fmt.Errorf("client: backoff from %v to %v, want 0 < MinBackoff ≤ MaxBackoff", o.MinBackoff, o.MaxBackoff))
	}
	if err := bearerToken(o.Token).check(); err != nil {
		faults = append(faults, err)
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("client: Timeout is %v, want 0 or more", o.Timeout))
	}
	return errors.Join(faults...)
}

// Client is a connection to one runlog cluster. It is safe for concurrent use.
type Client struct {
	opts        Options
	nodes       *nodes
	events      runlogv1.EventServiceClient
	projections runlogv1.ProjectionServiceClient
	runs        runlogv1.RunServiceClient
	cluster     runlogv1.ClusterServiceClient
	audit       runlogv1.AuditServiceClient
	access      runlogv1.AccessServiceClient
	queues      runlogv1.QueueServiceClient
	signals     runlogv1.SignalServiceClient
	subs        runlogv1.SubscriptionServiceClient
	retries     retries
	appenders   appenders
	// reached is set once a server has answered anything at all; see Options.FirstAttempts.
	reached atomic.Bool
}

// Dial prepares a client for the cluster with nodes at target: comma-separated addresses (package
// address), or any gRPC targets. Calls use the first one until it fails, and then the next. Dial
// does not wait for a node: the first call connects.
func Dial(target string, opts Options) (*Client, error) {
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts, err := opts.withScheme(target)
	if err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes))}
	nodes, err := newNodes(target, opts, slices.Concat(dial, opts.Observer.DialOptions(), opts.DialOptions))
	if err != nil {
		return nil, err
	}
	return &Client{
		opts:        opts,
		nodes:       nodes,
		retries:     retries{log: opts.Logger, observer: opts.Observer},
		events:      runlogv1.NewEventServiceClient(nodes),
		projections: runlogv1.NewProjectionServiceClient(nodes),
		runs:        runlogv1.NewRunServiceClient(nodes),
		cluster:     runlogv1.NewClusterServiceClient(nodes),
		audit:       runlogv1.NewAuditServiceClient(nodes),
		access:      runlogv1.NewAccessServiceClient(nodes),
		queues:      runlogv1.NewQueueServiceClient(nodes),
		signals:     runlogv1.NewSignalServiceClient(nodes),
		subs:        runlogv1.NewSubscriptionServiceClient(nodes),
	}, nil
}

// Close ends the Appenders, the connections and every call on them. A second Close does nothing.
func (c *Client) Close() error {
	c.appenders.close()
	return c.nodes.close()
}
