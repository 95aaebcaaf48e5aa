package projector

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
	"runlog/storage/tail"
)

// Options of a projector.
type Options struct {
	// Dir holds the projection database and nothing else. Required. It may be deleted while the
	// projector is closed.
	Dir string
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Store has the log to fold. Required. The caller closes it after the projector.
	Store *storage.Store
	// Tail has what was committed last, for this projector and others; nil: it reads by itself.
	Tail *tail.Tail
	// Cluster is that of the store. The database of another cluster is replaced by an empty one.
	Cluster storage.ClusterID
	// Projections are folded in addition to the run snapshots and the list. A rebuild folds them on
	// a second goroutine at the same time, so their functions share no memory between calls.
	Projections []Projection
	// CacheBytes bounds the snapshots in memory. Default: 128 MiB.
	CacheBytes int
	// OpenFiles bounds the tables that one database keeps open. Default: Pebble's, 1,000.
	OpenFiles int
	// MaxSubscriptions bounds the subscriptions to one run and to many, together. Default: 100,000.
	MaxSubscriptions int
	// Clock is that of the node, for lag. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry of its own.
	Registerer prometheus.Registerer
	// Fail is called when folding meets a damaged store, and when Pebble cannot continue (D10).
	// Required.
	Fail func(error)

	// fatal is called when Pebble cannot continue. It is Fail, also for the database of a rebuild.
	fatal func(error)
	// ceiling, if not nil, bounds the position up to which the projector folds.
	ceiling *ceiling
	// stepEvents ends a step of a catch-up. Default: stepEvents.
	stepEvents int
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MaxSubscriptions == 0 {
		o.MaxSubscriptions = 100_000
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.stepEvents == 0 {
		o.stepEvents = stepEvents
	}
	if o.fatal == nil {
		o.fatal = o.Fail
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("projector: Options.Dir is empty"))
	}
	if o.Store == nil {
		errs = append(errs, errors.New("projector: Options.Store is nil"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("projector: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}

// logReader is what rounds read.
type logReader interface {
	tail.Log
	Close()
}

func (o *Options) follow() logReader {
	if o.Tail == nil {
		return o.Store.FollowAhead(storage.Facts)
	}
	return o.Tail.Follow()
}
