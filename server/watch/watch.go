package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// leaderWait is how long a watch waits for an election.
const leaderWait = 5 * time.Second

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; resume the watch at another node"}

// Node is the part of the replica that the service needs.
type Node interface {
	AwaitLeader(context.Context) error
	View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*replica.Reading, error)
	ReadIndex(context.Context) error
	Waiting(context.Context) (context.Context, context.CancelFunc)
	Store() *storage.Store
}

// Options configure the service. All are required.
type Options struct {
	Node      Node
	Projector *projector.Projector
	Encoded   *wire.Snapshots
	Clock     func() time.Time
	// Heartbeat is the time between heartbeats on an idle stream (WATCH-4).
	Heartbeat time.Duration
	// SlowConsumer is how long one message of events may wait for its reader (WATCH-3).
	SlowConsumer time.Duration
	// MaxCatchUp bounds how many log entries a resumed watch of many runs may be behind.
	MaxCatchUp uint64
	// Memory is the budget from which messages draw.
	Memory   *budget.Budget
	Registry *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service is the streaming part of ProjectionService. Close ends it, after its calls.
type Service struct {
	opts  Options
	node  Node
	slow  prometheus.Counter
	posts *dispatcher    // watermarks and snapshots, to watchers of one run
	sends sync.WaitGroup // events, to watchers; they end with their calls
	logs  atomic.Int64   // watches of events of many runs
}

// New makes the service.
func New(opts Options) *Service {
	s := &Service{opts: opts, node: opts.Node, posts: newDispatcher(opts.Heartbeat),
		slow: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "watch", Name: "slow_consumers_total",
			Help: "Watches of events that were ended because their reader took none for too long (WATCH-3).",
		})}
	opts.Registry.MustRegister(s.slow)
	return s
}

// Close waits for messages in Send. All calls must have ended.
func (s *Service) Close() error {
	s.posts.close()
	s.sends.Wait()
	s.opts.Registry.Unregister(s.slow)
	return nil
}

// WatchRun streams watermarks, snapshots or events: first the current state, then every change
// (WATCH-1), and heartbeats while nothing changes (WATCH-4). For a slow reader watermarks and
// snapshots are conflated (WATCH-3).
func (s *Service) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	w := runWatch{s: s, stream: stream, runID: req.RunId, view: req.View, form: req.PayloadForm, level: req.Consistency,
		mustExist: req.MustExist, sent: req.AfterSeq, tokens: newWatchTokens(s.node.Store().Incarnation(), req.RunId)}
	if _, known := runlogv1.WatchView_Kind_name[int32(req.View)]; !known {
		return rpc.Invalid("view", "is not a view; the views are WATERMARK, SNAPSHOT and EVENT")
	}
	if req.ResumeToken != "" {
		var err error
		if w.sent, err = w.tokens.parse(req.ResumeToken); err != nil {
			return err
		}
	}
	w.taken = w.sent
	ctx, cancel := s.watching(stream.Context())
	defer cancel()
	return endOf(ctx, w.run(ctx))
}

// endOf returns why a stream ended. An operation that the context interrupted knows only that the
// context ended.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watching returns the context of a stream. It also ends with the node: clients resume at another
// node.
func (s *Service) watching(stream context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(stream)
	forget := context.AfterFunc(s.opts.Stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// confirm makes what follows as new as the consistency asks.
func (s *Service) confirm(ctx context.Context, level runlogv1.Consistency_Level) error {
	if level == runlogv1.Consistency_LOCAL {
		return nil
	}
	s.awaitLeader(ctx)
	return s.node.ReadIndex(ctx)
}

// awaitLeader waits briefly for an election: a browser closes an EventSource permanently when it is
// refused.
func (s *Service) awaitLeader(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	_ = s.node.AwaitLeader(ctx)
}

func tooManyWatchers(err error) error {
	if !errors.Is(err, watch.ErrTooManyWatchers) {
		return err
	}
	return rpc.TooManyStreams()
}

// runWatch is one stream about one run. The goroutine of the call sends events. Once the reader has
// caught up, the dispatcher sends watermarks and snapshots.
type runWatch struct {
	s       *Service
	stream  grpc.ServerStreamingServer[runlogv1.WatchRunResponse]
	runID   string
	sub     *watch.Subscription
	view    runlogv1.WatchView_Kind
	form    runlogv1.PayloadForm_Form
	tokens  watchTokens
	sent    uint64        // the highest runSeq sent; never goes back (WATCH-3)
	current *run.Snapshot // the newest known snapshot
	taken   uint64        // value of sent after the last message that Send has accepted
	stale   bool          // the last message said that the run is STALE (PRJ-12)
	drains  bool          // the last message said that the run drains (PRJ-9)
	level   runlogv1.Consistency_Level
	// mustExist refuses a run that does not exist. Otherwise the watch waits for it.
	mustExist bool
}

// run follows the run until the context ends.
func (w *runWatch) run(ctx context.Context) (err error) {
	if w.view == runlogv1.WatchView_EVENT {
		return w.followEvents(ctx)
	}
	post := w.s.posts.join(w)
	defer w.s.posts.leave(post)
	if w.sub, err = w.s.opts.Projector.Subscribe(w.runID, func() { w.s.posts.news(post) }); err != nil {
		return tooManyWatchers(err)
	}
	defer w.sub.Close()
	if err := w.begin(ctx); err != nil {
		return err
	}
	// The lag of the existing state is 0, because it was served long before.
	if stale := w.s.opts.Projector.Stale(w.runID); w.isNews(stale) {
		w.tells(stale)
		if err := w.send(w.message(0)); err != nil {
			return err
		}
	}
	w.tells(w.stale)
	if err := w.send(w.caughtUp()); err != nil {
		return err
	}
	w.s.posts.release(post)
	select {
	case err := <-post.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin reads the state of the run. The watch has subscribed before: events may repeat, none is
// lost. If the run does not exist, begin waits for it.
func (w *runWatch) begin(ctx context.Context) error {
	if w.level != runlogv1.Consistency_LOCAL {
		w.s.awaitLeader(ctx)
	}
	err := w.look(ctx)
	var missing *storage.RunNotFoundError
	if errors.As(err, &missing) && !w.mustExist {
		return w.awaitRun(ctx)
	}
	return err
}

// look reads the snapshot of the run.
func (w *runWatch) look(ctx context.Context) error {
	v, err := w.s.node.View(ctx, w.runID, w.level, 0)
	if err != nil {
		return err
	}
	w.current, err = w.s.opts.Projector.Snapshot(v.View)
	return errors.Join(err, v.Close())
}

// awaitRun returns once the run exists. Until then it sends heartbeats without a watermark, the
// first one at once: it tells a browser that its stream is open.
func (w *runWatch) awaitRun(ctx context.Context) error {
	sub, err := w.s.opts.Projector.Subscribe(w.runID, nil)
	if err != nil {
		return tooManyWatchers(err)
	}
	defer sub.Close()
	w.level = runlogv1.Consistency_LOCAL // Like any watch, it now waits for news at its node.
	var idle time.Time
	for beat := true; ; {
		err := w.look(ctx)
		var missing *storage.RunNotFoundError
		if !errors.As(err, &missing) {
			return err
		}
		// News of a run that the caller does not see must not show: they cause no message (SEC-4).
		if beat {
			if err := w.send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{Heartbeat: &runlogv1.Heartbeat{}}}); err != nil {
				return err
			}
			idle = time.Now().Add(w.s.opts.Heartbeat)
		}
		waiting, cancel := context.WithDeadline(ctx, idle)
		_, _ = sub.Next(waiting)
		beat = waiting.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// advance takes over a newer snapshot. A watch may begin ahead of the projector, which then
// publishes older snapshots (WATCH-3).
func (w *runWatch) advance(next *run.Snapshot) {
	if next != nil && next.LastEventSeq > w.current.LastEventSeq {
		w.current = next
	}
}

// isNews reports whether the reader lacks the current state of the run, or that it is STALE or has
// ceased to drain.
func (w *runWatch) isNews(stale bool) bool {
	return w.current.LastEventSeq > w.sent || w.current.LastEventSeq == w.sent && (stale && !w.stale || w.drains && !w.drainsNow())
}

// drainsNow tells whether the current state of the run has a substatus.
func (w *runWatch) drainsNow() bool {
	return w.s.opts.Encoded.Drains(w.current, w.s.opts.Clock())
}

// tells notes what the next message says of the run.
func (w *runWatch) tells(stale bool) {
	w.sent, w.stale, w.drains = max(w.sent, w.current.LastEventSeq), stale, w.drainsNow()
}

// deliver implements recipient.
func (w *runWatch) deliver(beat bool, shared messages) error {
	w.advance(w.sub.Take())
	stale := w.s.opts.Projector.Stale(w.runID)
	switch {
	case w.isNews(stale):
		w.tells(stale)
		return w.sendShared(shared)
	case beat:
		return w.send(w.heartbeat())
	default:
		return nil
	}
}

// messageKey identifies a message that all watchers of a run with one view share.
type messageKey struct {
	view     runlogv1.WatchView_Kind
	snapshot *run.Snapshot
	stale    bool
}

// sendShared sends the state of the run in a message that is encoded once for all of its watchers.
func (w *runWatch) sendShared(shared messages) error {
	key := messageKey{w.view, w.current, w.stale}
	m := shared[key]
	if m == nil {
		var err error
		if m, err = decode.Prepare(w.s.opts.Memory, w.withToken(w.message(w.s.lag(w.sub.Committed())))); err != nil {
			return err
		}
		shared[key] = m
	}
	return w.stream.SendMsg(m)
}

// message returns the message with the state of the run.
func (w *runWatch) message(lag time.Duration) *runlogv1.WatchRunResponse {
	if w.view == runlogv1.WatchView_SNAPSHOT {
		var md *storage.Metadata
		if r, err := w.s.node.Store().Run(w.runID); err == nil {
			md = r.Metadata
		}
		m, next := w.s.opts.Encoded.Page(w.current, md, w.s.opts.Clock(), wire.FirstPage(0))
		m.Stale = w.stale
		return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: m},
			NextStepsPageToken: wire.Optional(rpc.FormatSnapshotToken(w.s.node.Store().Incarnation(), w.current, next))}
	}
	m := w.watermark(lag)
	m.Stale = w.stale
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: m}}
}

func (w *runWatch) withToken(m *runlogv1.WatchRunResponse) *runlogv1.WatchRunResponse {
	m.ResumeToken = w.tokens.format(w.sent)
	return m
}

func (w *runWatch) send(m *runlogv1.WatchRunResponse) error { return w.stream.Send(w.withToken(m)) }

func (w *runWatch) caughtUp() *runlogv1.WatchRunResponse {
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{
		CaughtUp: &runlogv1.CaughtUp{Watermark: w.watermark(0)},
	}}
}

func (w *runWatch) heartbeat() *runlogv1.WatchRunResponse {
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
		Heartbeat: &runlogv1.Heartbeat{Watermark: w.watermark(0)},
	}}
}

func (w *runWatch) watermark(lag time.Duration) *runlogv1.Watermark {
	mark := watch.MarkOf(w.current)
	m := w.s.opts.Encoded.Mark(&mark, w.s.opts.Clock(), lag)
	m.Stale = w.s.opts.Projector.Stale(w.runID)
	return m
}

// lag is the time since a run's newest event was committed (PRJ-11).
func (s *Service) lag(committed time.Time) time.Duration {
	return max(0, s.opts.Clock().Sub(committed))
}
