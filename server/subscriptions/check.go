package subscriptions

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/subscriptions/sink"
	"runlog/storage/machine/subscription"
)

// Limits and defaults of settings (docs/event-bus.md).
const (
	maxTypes         = 100
	maxLabels        = 16
	maxInFlight      = 10_000
	maxAttempts      = 1000
	maxReason        = 4 << 10
	maxIDs           = 10_000
	defaultInFlight  = 1000
	webhookInFlight  = 64
	defaultAttempts  = 12
	defaultInitial   = 200 * time.Millisecond
	defaultMax       = 5 * time.Minute
	defaultAckWithin = 30 * time.Second
	longestDelay     = 24 * time.Hour
)

// violations gathers what is wrong with a request.
type violations struct{ rpc.Violations }

var idForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func (v *violations) id(id string) {
	switch {
	case id == "":
		v.Add("subscriptionId", "is required")
	case !idForm.MatchString(id):
		v.Add("subscriptionId", fmt.Sprintf("is %s: send 1 to 128 letters, digits, \".\", \"_\" and \"-\"", contract.Quote(id)))
	}
}

// filter checks a filter without its tenant, and sets it.
func (v *violations) filter(f *runlogv1.SubscriptionFilter, to *subscription.Settings) {
	for _, x := range [...]struct {
		field, name string
		faultOf     func(string) string
	}{
		{"filter.projectId", f.GetProjectId(), contract.ScopeFault}, {"filter.environmentId", f.GetEnvironmentId(), contract.ScopeFault},
		{"filter.planId", f.GetPlanId(), contract.NameFault},
	} {
		if x.name != "" {
			v.Add(x.field, x.faultOf(x.name))
		}
	}
	if len(f.GetTypes()) > maxTypes {
		v.Add("filter.types", fmt.Sprintf("has %d types: send at most %d", len(f.Types), maxTypes))
	}
	types := slices.Sorted(slices.Values(f.GetTypes()))
	for _, name := range types {
		if fault := contract.NameFault(name); fault != "" {
			v.Add("filter.types", "has "+contract.Quote(name)+", which "+fault)
		}
	}
	if len(f.GetLabels()) > maxLabels {
		v.Add("filter.labels", fmt.Sprintf("has %d labels: send at most %d", len(f.Labels), maxLabels))
	}
	for key, value := range f.GetLabels() {
		if fault := contract.LabelFault(key); fault != "" {
			v.Add("filter.labels", "has the name "+contract.Quote(key)+", which "+fault)
		}
		v.Add("filter.labels", contract.TextFault(value))
	}
	to.ProjectID, to.EnvironmentID, to.PlanID = f.GetProjectId(), f.GetEnvironmentId(), f.GetPlanId()
	to.Types, to.Labels = slices.Compact(types), f.GetLabels()
}

func (v *violations) retry(r *runlogv1.Retry, to *subscription.Settings) {
	to.RetryInitial = v.Duration("retry.initial", r.GetInitial(), time.Millisecond, time.Hour, defaultInitial)
	to.RetryMax = v.Duration("retry.max", r.GetMax(), time.Millisecond, longestDelay, max(defaultMax, to.RetryInitial))
	if to.RetryMax < to.RetryInitial {
		v.Add("retry.max", fmt.Sprintf("is %v: send at least retry.initial, which is %v", to.RetryMax, to.RetryInitial))
	}
	if to.MaxAttempts = r.GetMaxAttempts(); to.MaxAttempts == 0 {
		to.MaxAttempts = defaultAttempts
	} else if to.MaxAttempts > maxAttempts {
		v.Add("retry.maxAttempts", fmt.Sprintf("is %d: send 1 to %d", to.MaxAttempts, maxAttempts))
	}
}

func (v *violations) inFlight(n uint32, to *subscription.Settings) {
	if n > maxInFlight {
		v.Add("maxInFlight", fmt.Sprintf("is %d: send 1 to %d", n, maxInFlight))
	}
	to.MaxInFlight = n
}

func (v *violations) onDeadLetter(x runlogv1.OnDeadLetter_Value, to *subscription.Settings) {
	switch x {
	case runlogv1.OnDeadLetter_VALUE_UNSPECIFIED, runlogv1.OnDeadLetter_CONTINUE:
		to.OnDeadLetter = subscription.Continue
	case runlogv1.OnDeadLetter_HOLD_RUN:
		to.OnDeadLetter = subscription.HoldRun
	default:
		v.Add("onDeadLetter", "is not CONTINUE or HOLD_RUN")
	}
}

// delivery checks where events go, and sets it.
func (v *violations) delivery(d *runlogv1.Delivery, i *auth.Identity, to *subscription.Settings) (err error) {
	v.Violations = append(v.Violations, sink.Check(d)...)
	if sink.NeedsAllTenants(d) && (i == nil || !i.Tenants.All) {
		v.Add("delivery", "reaches the network of the nodes, which only a caller of all tenants may set: ask an operator of the cluster")
	}
	to.Delivery, err = proto.MarshalOptions{Deterministic: true}.Marshal(d)
	return err
}

// standards sets what a request has left out and depends on the delivery.
func standards(d *runlogv1.Delivery, to *subscription.Settings) {
	if to.MaxInFlight != 0 {
		return
	}
	to.MaxInFlight = defaultInFlight
	if d.GetWebhook() != nil {
		to.MaxInFlight = webhookInFlight
	}
}

// deliveryOf decodes what the machine keeps.
func deliveryOf(encoded []byte) (*runlogv1.Delivery, error) {
	d := &runlogv1.Delivery{}
	if err := proto.Unmarshal(encoded, d); err != nil {
		return nil, fmt.Errorf("undecodable delivery of a subscription: %w", err)
	}
	return d, nil
}

// ackTimeout returns how long a consumer has; 0: the events go to a sink.
func ackTimeout(encoded []byte) time.Duration {
	d, err := deliveryOf(encoded)
	switch {
	case err != nil || d.GetPull() == nil:
		return 0
	case d.GetPull().AckTimeout == nil:
		return defaultAckWithin
	}
	return d.GetPull().AckTimeout.AsDuration()
}
