package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	oneSQL  = `select seq, event, persisted, inserted from append_event($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`
	manySQL = `select n, seq, event, persisted, inserted from append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`
)

// batchForm is a way to store many events of a run in one transaction.
type batchForm struct {
	name  string
	store func(ctx context.Context, p *postgres, runID string, events []contract.Event, twins map[int]int) ([]stored, error)
	// connect makes what the form needs on each connection; nil: nothing.
	connect func(ctx context.Context, c *pgx.Conn) error
}

var (
	// unnest sends columns as arrays to a function, in one round trip.
	unnest = batchForm{name: "one call of a function with arrays", store: storeUnnest}
	// pipelined sends a call for each event, all in one round trip and one transaction.
	pipelined = batchForm{name: "a pipeline of single calls in a transaction", store: storePipelined}
	// copied streams rows into a table of the session and moves them from there, in four round
	// trips.
	copied = batchForm{name: "COPY into a temporary table and a function", store: storeCopied,
		connect: func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, stagingSQL)
			return err
		}}
)

// Append stores the events of a request in one transaction.
func (p *postgres) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	events, twins, err := parse(req)
	if err != nil {
		return nil, err
	}
	var all []stored
	if len(events) == 1 {
		all, err = p.storeOne(ctx, req.RunId, &events[0])
	} else {
		all, err = p.form.store(ctx, p, req.RunId, events, twins)
	}
	if err != nil {
		return nil, sqlError(err)
	}
	return answer(all, twins), nil
}

func (p *postgres) storeOne(ctx context.Context, runID string, e *contract.Event) ([]stored, error) {
	args, err := oneArgs(runID, e)
	if err != nil {
		return nil, err
	}
	s := make([]stored, 1)
	return s, s[0].scan(p.pool.QueryRow(ctx, oneSQL, args...))
}

func (s *stored) scan(row pgx.Row) error {
	var seq int64
	err := row.Scan(&seq, (*[16]byte)(&s.eventID), &s.persisted, &s.inserted)
	s.seq = uint64(seq)
	return err
}

func oneArgs(runID string, e *contract.Event) ([]any, error) {
	key, err := keyBytes(e)
	return []any{
		runID, key, [16]byte(e.EventID), e.Type, e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion,
		orNull(e.StepID), int32(e.LogicalAttemptID), int32(e.EngineAttemptID), e.EmittedAt, orNull(e.EmittedBy), e.Payload,
	}, err
}

// keyBytes is half as long as the key's text.
func keyBytes(e *contract.Event) ([]byte, error) { return hex.DecodeString(e.IdempotencyKey) }

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func storeUnnest(ctx context.Context, p *postgres, runID string, events []contract.Event, twins map[int]int) ([]stored, error) {
	var (
		size              = len(events)
		index             = make([]int, 0, size) // of the event in each row
		keys              = make([][]byte, 0, size)
		ids               = make([][16]byte, 0, size)
		types             = make([]string, 0, size)
		steps, emitters   = make([]*string, 0, size), make([]*string, 0, size)
		attempts, engines = make([]int32, 0, size), make([]int32, 0, size)
		emitted           = make([]int64, 0, size)
		bodies            = make([][]byte, 0, size)
	)
	for i := range events {
		if _, twin := twins[i]; twin {
			continue
		}
		e := &events[i]
		key, err := keyBytes(e)
		if err != nil {
			return nil, err
		}
		index, keys, ids, types = append(index, i), append(keys, key), append(ids, [16]byte(e.EventID)), append(types, e.Type)
		steps, emitters = append(steps, orNull(e.StepID)), append(emitters, orNull(e.EmittedBy))
		attempts, engines = append(attempts, int32(e.LogicalAttemptID)), append(engines, int32(e.EngineAttemptID))
		emitted, bodies = append(emitted, e.EmittedAt), append(bodies, e.Payload)
	}
	first := &events[0]
	rows, err := p.pool.Query(ctx, manySQL, runID, keys, ids, types, first.TenantID, first.ProjectID, first.EnvironmentID,
		first.PlanID, first.PlanVersion, steps, attempts, engines, emitted, emitters, bodies)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, index, size)
}

// scanAll reads the rows that append_events returns, in any order.
func scanAll(rows pgx.Rows, index []int, size int) ([]stored, error) {
	all := make([]stored, size)
	var (
		n, seq    int64
		id        [16]byte
		persisted time.Time
		inserted  bool
		count     int
	)
	_, err := pgx.ForEachRow(rows, []any{&n, &seq, &id, &persisted, &inserted}, func() error {
		if n < 1 || n > int64(len(index)) {
			return fmt.Errorf("row %d of %d", n, len(index))
		}
		all[index[n-1]] = stored{eventID: id, seq: uint64(seq), persisted: persisted, inserted: inserted}
		count++
		return nil
	})
	if err == nil && count != len(index) {
		err = fmt.Errorf("%d rows for %d events", count, len(index))
	}
	return all, err
}

func storePipelined(ctx context.Context, p *postgres, runID string, events []contract.Event, _ map[int]int) ([]stored, error) {
	all := make([]stored, len(events))
	// A batch that is sent without begin is a transaction of its own.
	b := &pgx.Batch{}
	for i := range events {
		args, err := oneArgs(runID, &events[i])
		if err != nil {
			return nil, err
		}
		b.Queue(oneSQL, args...).QueryRow(all[i].scan)
	}
	return all, p.pool.SendBatch(ctx, b).Close()
}

const (
	stagingSQL = `create temporary table staging (n bigint, key bytea, id uuid, type text, step text, attempt integer, engine integer, emitted bigint, emitter text, body json);
		create function pg_temp.append_staged(run text, tenant text, project text, environment text, plan text, version text)
		returns table (n bigint, seq bigint, event uuid, persisted timestamptz, inserted boolean) language plpgsql as $$
		declare
			last bigint;
			now timestamptz := clock_timestamp();
		begin
			perform pg_advisory_xact_lock(hashtextextended(run, 0));
			last := coalesce((select e.run_seq from events e where e.run_id = run order by e.run_seq desc limit 1), 0);
			return query
			with known as (
				select g.n, e.run_seq, e.event_id, e.persisted_at from staging g join events e on e.run_id = run and e.idempotency_key = g.key
			), fresh as (
				insert into events
				select run, last + row_number() over (order by g.n), g.key, g.id, g.type, tenant, project, environment, plan, version,
				       g.step, g.attempt, g.engine, g.emitted, g.emitter, now, g.body
				from staging g where not exists (select from known k where k.n = g.n)
				order by g.n
				returning idempotency_key, run_seq, event_id
			)
			select g.n, f.run_seq, f.event_id, now, true from fresh f join staging g on g.key = f.idempotency_key
			union all
			select k.n, k.run_seq, k.event_id, k.persisted_at, false from known k;
			truncate staging;
		end $$`
	stagedSQL = `select n, seq, event, persisted, inserted from pg_temp.append_staged($1, $2, $3, $4, $5, $6)`
)

func storeCopied(ctx context.Context, p *postgres, runID string, events []contract.Event, twins map[int]int) (all []stored, err error) {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback(ctx))
		}
	}()
	var index []int
	var rows [][]any
	for i := range events {
		if _, twin := twins[i]; twin {
			continue
		}
		e := &events[i]
		key, err := keyBytes(e)
		if err != nil {
			return nil, err
		}
		index = append(index, i)
		rows = append(rows, []any{int64(len(index)), key, [16]byte(e.EventID), e.Type, orNull(e.StepID), int32(e.LogicalAttemptID),
			int32(e.EngineAttemptID), e.EmittedAt, orNull(e.EmittedBy), e.Payload})
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"staging"},
		[]string{"n", "key", "id", "type", "step", "attempt", "engine", "emitted", "emitter", "body"}, pgx.CopyFromRows(rows)); err != nil {
		return nil, err
	}
	first := &events[0]
	answered, err := tx.Query(ctx, stagedSQL, runID, first.TenantID, first.ProjectID, first.EnvironmentID, first.PlanID, first.PlanVersion)
	if err != nil {
		return nil, err
	}
	if all, err = scanAll(answered, index, len(events)); err != nil {
		return nil, err
	}
	return all, tx.Commit(ctx)
}

// sqlError gives an error its SQLSTATE to be counted by.
func sqlError(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failed("SQLSTATE_"+e.Code, err)
	}
	return err
}
