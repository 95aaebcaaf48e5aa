package subscription

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Kind of the machine.
const Kind = 22

// Limits of subscriptions.
const (
	// MaxSubscriptions bounds those of a tenant, and those to all tenants.
	MaxSubscriptions = 10_000
	// MaxOwed bounds the runs that owe events of a subscription.
	MaxOwed = 20_000
	// MaxDeadLetters bounds the dead letters of a subscription.
	MaxDeadLetters = 10_000
	// MaxSettingsBytes bounds the settings, encoded: they are written with every change.
	MaxSettingsBytes = 64 << 10
	// MaxErrorBytes bounds the error of a dead letter.
	MaxErrorBytes = 4 << 10
)

// Limits of operations.
const (
	// MaxItems bounds the items of one Settle.
	MaxItems = 1000
	// MaxPlaces bounds the dead letters that one Redrive or Discard names.
	MaxPlaces = 1000
)

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{
		{Prefix: []byte(rowTable), Name: "subscriptions"},
		{Prefix: []byte(nameTable), Name: "subscriptions by name"},
		{Prefix: []byte(owedTable), Name: "runs that owe events to subscriptions"},
		{Prefix: []byte(letterTable), Name: "dead letters"},
		{Prefix: []byte(countTable), Name: "numbers of subscriptions"},
	}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Name is what a subscription is known by.
type Name struct {
	Tenant string // empty: it has the events of all tenants
	ID     string
}

func (n Name) String() string {
	if n.Tenant == "" {
		return fmt.Sprintf("%q to all tenants", n.ID)
	}
	return fmt.Sprintf("%q of tenant %q", n.ID, n.Tenant)
}

// check returns why the machine cannot keep a name.
func (n Name) check() error {
	if n.ID == "" {
		return errors.New("subscription: the name has no subscriptionId")
	}
	return errors.Join(noZero("tenantId", n.Tenant), noZero("subscriptionId", n.ID))
}

// noZero returns an error if a text has a zero byte, which ends texts in keys.
func noZero(field, text string) error {
	if strings.Contains(text, "\x00") {
		return fmt.Errorf("subscription: %s has a zero byte", field)
	}
	return nil
}

func encodeName(n Name) *recordv1.SubscriptionName {
	return &recordv1.SubscriptionName{TenantId: n.Tenant, SubscriptionId: n.ID}
}

func decodeName(m *recordv1.SubscriptionName) Name {
	return Name{Tenant: m.GetTenantId(), ID: m.GetSubscriptionId()}
}

// OnDeadLetter says what becomes of the later events of a run when one is parked (BUS-4).
type OnDeadLetter uint32

// What may become of them.
const (
	Continue OnDeadLetter = 1 // They are delivered.
	HoldRun  OnDeadLetter = 2 // They wait until the run has no dead letter.
)

// Settings of a subscription. The machine keeps and compares them, and reads nothing of them.
type Settings struct {
	// The filter, without the tenant.
	ProjectID, EnvironmentID string
	Types                    []string
	PlanID                   string
	Labels                   map[string]string

	Delivery                 []byte // runlog.v1.Delivery
	RetryInitial, RetryMax   time.Duration
	MaxAttempts, MaxInFlight uint32
	OnDeadLetter             OnDeadLetter
}

func encodeSettings(s *Settings) (*recordv1.SubscriptionSettings, error) {
	m := &recordv1.SubscriptionSettings{
		ProjectId: s.ProjectID, EnvironmentId: s.EnvironmentID, Types: s.Types, PlanId: s.PlanID, Labels: s.Labels, Delivery: s.Delivery,
		RetryInitial: int64(s.RetryInitial), RetryMax: int64(s.RetryMax), MaxAttempts: s.MaxAttempts, MaxInFlight: s.MaxInFlight,
		OnDeadLetter: uint32(s.OnDeadLetter),
	}
	if n := proto.Size(m); n > MaxSettingsBytes {
		return nil, fmt.Errorf("subscription: encode settings: %d bytes are more than %d", n, MaxSettingsBytes)
	}
	return m, nil
}

func decodeSettings(m *recordv1.SubscriptionSettings) Settings {
	return Settings{
		ProjectID: m.GetProjectId(), EnvironmentID: m.GetEnvironmentId(), Types: m.GetTypes(), PlanID: m.GetPlanId(), Labels: m.GetLabels(),
		Delivery: m.GetDelivery(), RetryInitial: time.Duration(m.GetRetryInitial()), RetryMax: time.Duration(m.GetRetryMax()),
		MaxAttempts: m.GetMaxAttempts(), MaxInFlight: m.GetMaxInFlight(), OnDeadLetter: OnDeadLetter(m.GetOnDeadLetter()),
	}
}

// differences names the fields in which settings differ, as the API does.
func differences(a, b *recordv1.SubscriptionSettings) (fields []string) {
	for _, f := range [...]struct {
		name string
		same bool
	}{
		{"filter.projectId", a.GetProjectId() == b.GetProjectId()},
		{"filter.environmentId", a.GetEnvironmentId() == b.GetEnvironmentId()},
		{"filter.types", slices.Equal(a.GetTypes(), b.GetTypes())},
		{"filter.planId", a.GetPlanId() == b.GetPlanId()},
		{"filter.labels", maps.Equal(a.GetLabels(), b.GetLabels())},
		{"delivery", bytes.Equal(a.GetDelivery(), b.GetDelivery())},
		{"retry.initial", a.GetRetryInitial() == b.GetRetryInitial()},
		{"retry.max", a.GetRetryMax() == b.GetRetryMax()},
		{"retry.maxAttempts", a.GetMaxAttempts() == b.GetMaxAttempts()},
		{"maxInFlight", a.GetMaxInFlight() == b.GetMaxInFlight()},
		{"onDeadLetter", a.GetOnDeadLetter() == b.GetOnDeadLetter()},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}
