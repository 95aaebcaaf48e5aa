package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"runlog/bench/target"
	runlogv1 "runlog/proto/runlog/v1"
)

var _ target.Queuer = (*postgres)(nil)

const (
	// riverCooldown is the least time between two fetches of jobs: the shortest that River takes.
	riverCooldown = time.Millisecond
	riverEnd      = 10 * time.Second
)

// riverQueue is River on the PostgreSQL that is compared. A run is a job, unique by its run id
// as long as River keeps its jobs. A worker stores the run's RunStarted in a transaction, and
// then its job ends. River marks jobs completed in batches, and no call here waits for that.
type riverQueue struct {
	p      *postgres
	client *river.Client[pgx.Tx]
	jobs   chan *riverJob
	closed chan struct{}
}

// riverArgs are what River stores of a job.
type riverArgs struct {
	RunID string `json:"runId" river:"unique"`
}

// Kind names the jobs.
func (riverArgs) Kind() string { return "run" }

// riverWorker passes each job to a caller of Take, and waits until it was started.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	q *riverQueue
}

// Work is called by River, in a goroutine of each job.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	j := &riverJob{q: w.q, runID: job.Args.RunID, started: make(chan error, 1)}
	select {
	case w.q.jobs <- j:
	case <-w.q.closed:
		return errors.New("the bench is over")
	}
	select {
	case err := <-j.started:
		return err
	case <-w.q.closed:
		return errors.New("the bench is over")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// OpenQueue makes River's tables and starts a client.
func (p *postgres) OpenQueue(ctx context.Context, workers int) (target.Queue, error) {
	driver := riverpgxv5.New(p.pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("make River's tables: %w", err)
	}
	q := &riverQueue{p: p, jobs: make(chan *riverJob), closed: make(chan struct{})}
	known := river.NewWorkers()
	if err := river.AddWorkerSafely(known, &riverWorker{q: q}); err != nil {
		return nil, err
	}
	q.client, err = river.NewClient(driver, &river.Config{
		Logger: quiet, Workers: known, JobTimeout: -1, FetchCooldown: riverCooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err != nil {
		return nil, err
	}
	return q, q.client.Start(ctx)
}

// Request inserts a job.
func (q *riverQueue) Request(ctx context.Context, runID string) error {
	_, err := q.client.Insert(ctx, riverArgs{runID}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
	return err
}

// Take waits for a job.
func (q *riverQueue) Take(ctx context.Context) (target.Job, error) {
	select {
	case j := <-q.jobs:
		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the client.
func (q *riverQueue) Close() error {
	close(q.closed)
	ctx, cancel := context.WithTimeout(context.Background(), riverEnd)
	defer cancel()
	return q.client.StopAndCancel(ctx)
}

// riverJob is a job that a worker has.
type riverJob struct {
	q       *riverQueue
	runID   string
	started chan error
}

// RunID names the run.
func (j *riverJob) RunID() string { return j.runID }

// Started stores RunStarted, and lets the job end.
func (j *riverJob) Started(ctx context.Context) error {
	err := startOf(ctx, j.q.p, j.runID)
	j.started <- err
	return err
}

// startOf stores the RunStarted of a run.
func startOf(ctx context.Context, t target.Target, runID string) error {
	_, err := t.Append(ctx, &runlogv1.AppendEventsRequest{RunId: runID, Events: []*runlogv1.EventWrite{target.StartOf(time.Now())}})
	return err
}
