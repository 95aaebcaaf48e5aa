-- What an adapter that keeps runs in PostgreSQL would have. Both unique indexes are the contract's: a run has
-- one event with a number, and one with a key.
create table events (
    run_id          text        not null,
    run_seq         bigint      not null,
    idempotency_key bytea       not null, -- the SHA-256 itself, half as long as its text
    event_id        uuid        not null,
    event_type      text        not null,
    tenant_id       text        not null,
    project_id      text        not null,
    environment_id  text        not null,
    plan_id         text        not null,
    plan_version    text        not null,
    step_id         text,
    logical_attempt integer     not null,
    engine_attempt  integer     not null,
    emitted_at      bigint      not null, -- nanoseconds since 1970; a timestamptz has microseconds
    emitted_by      text,
    persisted_at    timestamptz not null,
    payload         json        not null, -- checked, and kept byte for byte
    primary key (run_id, run_seq),
    unique (run_id, idempotency_key)
);

-- One event. The lock keeps two appends to a run apart until the first is committed; without it they would take
-- the same number, and all but one would have to be tried again.
create function append_event(
    run text, key bytea, id uuid, type text, tenant text, project text, environment text, plan text, version text,
    step text, attempt integer, engine integer, emitted bigint, emitter text, body json,
    out seq bigint, out event uuid, out persisted timestamptz, out inserted boolean
) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(run, 0));
    insert into events
    select run, coalesce((select e.run_seq from events e where e.run_id = run order by e.run_seq desc limit 1), 0) + 1,
           key, id, type, tenant, project, environment, plan, version, step, attempt, engine, emitted, emitter, clock_timestamp(), body
    on conflict (run_id, idempotency_key) do nothing
    returning run_seq, event_id, persisted_at, true into seq, event, persisted, inserted;
    if not found then
        select e.run_seq, e.event_id, e.persisted_at, false into seq, event, persisted, inserted
        from events e where e.run_id = run and e.idempotency_key = key;
    end if;
end $$;

-- Many events of one run, all or none, with consecutive numbers. Keys do not repeat within them.
create function append_events(
    run text, keys bytea[], ids uuid[], types text[], tenant text, project text, environment text, plan text, version text,
    steps text[], attempts integer[], engines integer[], emitted bigint[], emitters text[], bodies json[]
) returns table (n bigint, seq bigint, event uuid, persisted timestamptz, inserted boolean)
language plpgsql as $$
declare
    last bigint;
    now timestamptz := clock_timestamp();
begin
    perform pg_advisory_xact_lock(hashtextextended(run, 0));
    last := coalesce((select e.run_seq from events e where e.run_id = run order by e.run_seq desc limit 1), 0);
    return query
    with given as (
        select * from unnest(keys, ids, types, steps, attempts, engines, emitted, emitters, bodies)
            with ordinality as g (key, id, type, step, attempt, engine, at, emitter, body, n)
    ), known as (
        select g.n, e.run_seq, e.event_id, e.persisted_at
        from given g join events e on e.run_id = run and e.idempotency_key = g.key
    ), fresh as (
        insert into events
        select run, last + row_number() over (order by g.n), g.key, g.id, g.type, tenant, project, environment, plan, version,
               g.step, g.attempt, g.engine, g.at, g.emitter, now, g.body
        from given g where not exists (select from known k where k.n = g.n)
        order by g.n
        returning idempotency_key, run_seq, event_id
    )
    select g.n, f.run_seq, f.event_id, now, true from fresh f join given g on g.key = f.idempotency_key
    union all
    select k.n, k.run_seq, k.event_id, k.persisted_at, false from known k;
end $$;
