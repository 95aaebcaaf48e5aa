package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// request has the flags of run request.
type request struct {
	scope
	req                                      runlogv1.RequestRunRequest
	plan, notBefore, context, engine, onWhom string
	rerun                                    string
	planExpires, planEvolution, migration    string
	planRef                                  runlogv1.PlanRef
	priority                                 uint32
	labels                                   []string
}

func (a *app) requestCommand() *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Request a run: it waits in a queue until a worker starts it",
		Long: `Make a run and enter it into a queue. The same request again, with the same --id, returns the same run and
stores nothing, so it can be repeated after any failure. Without --id, the command makes one and prints it on
stderr before it calls the server: a retry must repeat it. If the queue is full, the command tries again until
--timeout.

--rerun requests a run in place of one that is FAILED or CANCELLED. It has the scope, the plan, the queue, the
engine and the context of that run, and its engine takes over the outputs of the steps that have succeeded there.
Every engine of this module does so.

--not-before is +10m, +24h or +7d from now, or

` + session.MomentHelp,
		Example: `  runlog run request --tenant acme --project web --environment prod --plan build@3 --id invoice-4711
  runlog run request --tenant acme --project web --environment prod --plan build@3 --id nightly-2026-02-11 \
    --queue nightly --priority 7 --not-before +10m --label team=payments --run-context '{"invoice":"4711"}'
  runlog run request --rerun run-7 --id invoice-4711-again`,
		Args: session.NoArguments("--run names the run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.complete(cmd, time.Now()); err != nil {
				return err
			}
			if r.rerun != "" {
				if err := a.WithClient(func(c *client.Client) error { return r.again(cmd.Context(), c) }); err != nil {
					return err
				}
			}
			if r.req.RunRequestId == "" {
				// NewV7 fails only without random numbers.
				r.req.RunRequestId = uuid.Must(uuid.NewV7()).String()
				fmt.Fprintf(a.Stderr, "the id of this request is %s; to repeat it, give --id %[1]s\n", r.req.RunRequestId)
			}
			return a.WithClient(func(c *client.Client) error {
				res, err := c.RequestRun(cmd.Context(), &r.req)
				if err != nil {
					return err
				}
				return a.showRequest(r.req.RunRequestId, res)
			})
		},
	}
	r.addFlags(cmd.Flags(), "run")
	f := cmd.Flags()
	f.StringVar(&r.plan, "plan", "", "the plan that the run executes, as ID@VERSION")
	f.StringVar(&r.planRef.Uri, "plan-uri", "", "where the plan is")
	f.StringVar(&r.planRef.Sha256, "plan-sha256", "", "SHA-256 of the plan, in hexadecimal digits")
	f.StringVar(&r.planRef.SchemaVersion, "plan-schema", "", "schemaVersion of the plan, such as v1.2")
	f.StringVar(&r.planExpires, "plan-expires", "", "time of RFC 3339 from which the plan begins no run")
	f.StringVar(&r.planEvolution, "plan-evolution", "", "schema versions that the plan is migrated through, such as \"v1.0 → v1.2\"")
	f.StringVar(&r.migration, "plan-migration", "", "how the plan was migrated, for people: a JSON object of sourceVersion, targetVersion and transformScript")
	f.StringVar(&r.req.RunRequestId, "id", "", "what you call the request; with the scope and the plan, it identifies the request forever")
	f.StringVar(&r.req.RunId, "run", "", "id of the run (default: made from the request)")
	f.StringVar(&r.queue, "queue", "", "name of the queue (default \"default\")")
	f.Uint32Var(&r.priority, "priority", 5, "0 (lowest) to 9")
	f.StringVar(&r.notBefore, "not-before", "", "the run is not started before this time")
	f.StringVar(&r.engine, "engine", "", "type of the engine that is to execute the run")
	f.StringVar(&r.onWhom, "triggered-by", "", "on whose behalf the run is requested")
	f.StringArrayVar(&r.labels, "label", nil, "label of the run, KEY=VALUE; repeat it for several")
	f.StringVar(&r.rerun, "rerun", "", "the run whose place this one takes; it gives the scope, the plan, the queue, the engine and the context")
	f.StringVar(&r.context, "run-context", "", "context of the run: a JSON object for the engine")
	return cmd
}

// complete completes the request from the flags.
func (r *request) complete(cmd *cobra.Command, now time.Time) (err error) {
	f := cmd.Flags()
	if err := session.RefuseEmpty(f, "id", "run", "queue", "not-before", "engine", "triggered-by", "run-context", "plan-uri", "plan-sha256", "plan-schema",
		"plan-expires", "plan-evolution", "plan-migration", "rerun"); err != nil {
		return err
	}
	if r.rerun != "" {
		err = refuse(f, append(slices.Clone(scopeFlags), "plan", "plan-uri", "plan-sha256", "plan-schema", "plan-expires",
			"plan-evolution", "plan-migration", "queue", "engine", "run-context")...)
	} else {
		err = r.named(f)
	}
	if err != nil {
		return err
	}
	q := &r.req
	if f.Changed("priority") {
		q.Priority = &r.priority
	}
	if f.Changed("engine") {
		q.EngineType = &r.engine
	}
	if f.Changed("triggered-by") {
		q.TriggeredBy = &r.onWhom
	}
	if r.notBefore != "" {
		if q.NotBefore, err = session.Ahead("not-before", r.notBefore, now); err != nil {
			return err
		}
	}
	if q.Labels, err = session.Pairs("label", r.labels); err != nil {
		return err
	}
	if r.context != "" {
		q.Context = &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(r.context), q.Context); err != nil {
			return output.UsageError("--run-context is no JSON object")
		}
	}
	return nil
}

// named takes the scope and the plan from the flags.
func (r *request) named(f *pflag.FlagSet) error {
	if err := require(f, append(slices.Clone(scopeFlags), "plan")...); err != nil {
		return err
	}
	q := &r.req
	q.TenantId, q.ProjectId, q.EnvironmentId, q.Queue, q.PlanRef = r.tenant, r.project, r.environment, r.queue, &r.planRef
	at := strings.LastIndex(r.plan, "@")
	if at <= 0 || at == len(r.plan)-1 {
		return output.UsageError("--plan %q is not ID@VERSION, such as build@3", r.plan)
	}
	q.PlanRef.PlanId, q.PlanRef.PlanVersion = r.plan[:at], r.plan[at+1:]
	if f.Changed("plan-expires") {
		q.PlanRef.ExpiresAt = &r.planExpires
	}
	if f.Changed("plan-evolution") {
		q.PlanRef.SchemaEvolutionPath = &r.planEvolution
	}
	if r.migration != "" {
		q.PlanRef.MigrationHint = &runlogv1.MigrationHint{}
		if err := protojson.Unmarshal([]byte(r.migration), q.PlanRef.MigrationHint); err != nil {
			return output.UsageError("--plan-migration is no JSON object of sourceVersion, targetVersion and transformScript")
		}
	}
	return nil
}

// refuse refuses flags that --rerun takes the place of.
func refuse(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f.Changed(name) {
			return output.UsageError("--%s is given by the run of --rerun: leave it out", name)
		}
	}
	return nil
}

// again takes what a request needs from the run that is to be rerun, and from its RunQueued.
func (r *request) again(ctx context.Context, c *client.Client) error {
	run, err := c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: r.rerun})
	if err != nil {
		return err
	}
	q := &r.req
	q.RerunOf, q.TenantId, q.ProjectId, q.EnvironmentId = &r.rerun, run.GetTenantId(), run.GetProjectId(), run.GetEnvironmentId()
	q.PlanRef, q.EngineType = run.GetPlanRef(), run.EngineType
	for e, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: r.rerun, Limit: 1, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			return err
		}
		if e.GetEventType() != contract.RunQueued {
			break // The run was not requested.
		}
		var said structpb.Struct
		if err := protojson.Unmarshal(e.GetPayloadJson(), &said); err != nil {
			return output.Errorf(output.ExitRefused, "cannot read the RunQueued of run %s: %v; request a run of the plan instead", r.rerun, err)
		}
		q.Queue, q.Context = said.GetFields()["queue"].GetStringValue(), said.GetFields()["context"].GetStructValue()
		break
	}
	return nil
}

// showRequest prints what has become of a request.
func (a *app) showRequest(id string, res *runlogv1.RequestRunResponse) error {
	position, repeated := "", ""
	if res.GetPosition() > 0 {
		position = output.Number(res.GetPosition())
	}
	if res.GetIdempotent() {
		repeated = "yes: the request was made before, and nothing was stored"
	}
	return a.Show(res,
		[2]string{"Run", res.GetRun().GetRunId()},
		[2]string{"Request", id},
		[2]string{"Disposition", res.GetDisposition().String()},
		[2]string{"Position", position},
		[2]string{"Not before", output.Stamp(res.GetNotBefore())},
		[2]string{"Repeated", repeated},
	)
}
