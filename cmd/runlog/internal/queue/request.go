package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// request has the flags of run request.
type request struct {
	scope
	req                                      runlogv1.RequestRunRequest
	plan, notBefore, context, engine, onWhom string
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

--not-before is +10m, +24h or +7d from now, or

` + session.MomentHelp,
		Example: `  runlog run request --tenant acme --project web --environment prod --plan build@3 --id invoice-4711
  runlog run request --tenant acme --project web --environment prod --plan build@3 --id nightly-2026-02-11 \
    --queue nightly --priority 7 --not-before +10m --label team=payments --run-context '{"invoice":"4711"}'`,
		Args: session.NoArguments("--run names the run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.complete(cmd, time.Now()); err != nil {
				return err
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
	f.StringVar(&r.req.RunRequestId, "id", "", "what you call the request; with the scope and the plan, it identifies the request forever")
	f.StringVar(&r.req.RunId, "run", "", "id of the run (default: made from the request)")
	f.StringVar(&r.queue, "queue", "", "name of the queue (default \"default\")")
	f.Uint32Var(&r.priority, "priority", 5, "0 (lowest) to 9")
	f.StringVar(&r.notBefore, "not-before", "", "the run is not started before this time")
	f.StringVar(&r.engine, "engine", "", "type of the engine that is to execute the run")
	f.StringVar(&r.onWhom, "triggered-by", "", "on whose behalf the run is requested")
	f.StringArrayVar(&r.labels, "label", nil, "label of the run, KEY=VALUE; repeat it for several")
	f.StringVar(&r.context, "run-context", "", "context of the run: a JSON object for the engine")
	return cmd
}

// complete completes the request from the flags.
func (r *request) complete(cmd *cobra.Command, now time.Time) (err error) {
	f := cmd.Flags()
	if err := session.RefuseEmpty(f, "id", "run", "queue", "not-before", "engine", "triggered-by", "run-context", "plan-uri", "plan-sha256", "plan-schema"); err != nil {
		return err
	}
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
	for _, label := range r.labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return output.UsageError("--label %q is not KEY=VALUE", label)
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		q.Labels[name] = value
	}
	if r.context != "" {
		q.Context = &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(r.context), q.Context); err != nil {
			return output.UsageError("--run-context is no JSON object")
		}
	}
	return nil
}

// showRequest prints what has become of a request.
func (a *app) showRequest(id string, res *runlogv1.RequestRunResponse) error {
	if a.Format == output.JSON {
		return a.Message(res)
	}
	position, repeated := "", ""
	if res.GetPosition() > 0 {
		position = output.Number(res.GetPosition())
	}
	if res.GetIdempotent() {
		repeated = "yes: the request was made before, and nothing was stored"
	}
	output.Facts(a.Stdout,
		[2]string{"Run", res.GetRun().GetRunId()},
		[2]string{"Request", id},
		[2]string{"Disposition", res.GetDisposition().String()},
		[2]string{"Position", position},
		[2]string{"Not before", output.Stamp(res.GetNotBefore())},
		[2]string{"Repeated", repeated},
	)
	return nil
}
