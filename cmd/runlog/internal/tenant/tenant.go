// Package tenant has the command tenant: what the tenants of a cluster may use.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// defaultTenant is the name of the cluster's default.
const defaultTenant = "*"

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the command tenant.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	return []*cobra.Command{session.Group(&cobra.Command{Use: "tenant", Short: "Show and set what tenants may use"}, a.limitsCommand())}
}

func (a *app) limitsCommand() *cobra.Command {
	var set flags
	var self selfAttestation
	cmd := &cobra.Command{
		Use:   "limits [TENANT]",
		Short: "Show and set the limits of a tenant",
		Long: `Show what TENANT may use; without TENANT, the default of the cluster. With flags, set these limits and keep
the others: that takes an admin of all tenants. 0 gives the tenant the default again, and none is no limit.`,
		Example: "  runlog tenant limits acme\n  runlog tenant limits acme --events-per-second 5000 --bytes-per-second 20MiB --streams 200 --running-runs 500",
		Args:    session.Arguments(0, 1, "the name of one tenant, or none"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := append(args, defaultTenant)[0]
			return a.WithClient(func(c *client.Client) error { return a.limits(cmd.Context(), c, name, &set, &self) })
		},
	}
	for i, l := range limits {
		cmd.Flags().Var(&set[i], l.flag, l.help)
	}
	cmd.Flags().Var(&self, "self-attestation", "whether those who requested or started a run may attest its steps: allowed, forbidden or default")
	return cmd
}

// limit is one of the limits.
type limit struct {
	flag, help, name string
	of               func(*runlogv1.TenantLimits) *uint64
	used             func(*runlogv1.TenantUsage) *uint64 // nil: it is not measured
}

var limits = [...]limit{
	{"events-per-second", "events that the tenant may append in a second", "events per second",
		func(l *runlogv1.TenantLimits) *uint64 { return &l.EventsPerSecond }, nil},
	{"bytes-per-second", "bytes that it may append in a second, such as 20MiB", "bytes per second",
		func(l *runlogv1.TenantLimits) *uint64 { return &l.BytesPerSecond }, nil},
	{"streams", "streams that its callers may have open at one node", "streams",
		func(l *runlogv1.TenantLimits) *uint64 { return &l.Streams }, nil},
	{"stored-bytes", "bytes that its stored events may take, such as 1TiB", "stored bytes",
		func(l *runlogv1.TenantLimits) *uint64 { return &l.StoredBytes }, func(u *runlogv1.TenantUsage) *uint64 { return &u.StoredBytes }},
	{"running-runs", "runs that are not over that it may have, at most 10000", "running runs",
		func(l *runlogv1.TenantLimits) *uint64 { return &l.RunningRuns }, func(u *runlogv1.TenantUsage) *uint64 { return &u.RunningRuns }},
}

// flags are those of the limits, in their order.
type flags [len(limits)]amount

func (a *app) limits(ctx context.Context, c *client.Client, name string, set *flags, self *selfAttestation) error {
	got, err := c.GetTenantLimits(ctx, name)
	if err != nil {
		return err
	}
	own, effective := got.Limits, got.Effective
	if self.given || slices.ContainsFunc(set[:], func(m amount) bool { return m.given }) {
		for i, l := range limits {
			set[i].put(l.of(own))
		}
		if self.given {
			own.SelfAttestation = self.value
		}
		set, err := c.SetTenantLimits(ctx, name, own)
		if err != nil {
			return err
		}
		own, effective = set.Limits, set.Effective
	}
	if a.Format == output.JSON {
		return a.Object(struct {
			Tenant    string `json:"tenantId"`
			Limits    line   `json:"limits"`
			Effective line   `json:"effective"`
			Usage     *used  `json:"usage,omitempty"`
		}{name, lineOf(own), lineOf(effective), usedOf(got.Usage)})
	}
	table := output.NewTable(a.Stdout, a.StdoutWidth, "LIMIT", "SET", "COUNTS", "USED")
	for _, l := range limits {
		used := ""
		if l.used != nil && got.Usage != nil {
			used = strconv.FormatUint(*l.used(got.Usage), 10)
		}
		table.Row(l.name, text(*l.of(own), "default"), text(*l.of(effective), "none"), used)
	}
	table.Row("self-attestation", selfName(own.GetSelfAttestation()), selfName(effective.GetSelfAttestation()), "")
	if u := got.Usage; u != nil { // Queues have limits of their own.
		table.Row("queues", "", "", strconv.FormatUint(u.Queues, 10))
		table.Row("queued runs", "", "", strconv.FormatUint(u.QueuedRuns, 10))
		table.Row("leased runs", "", "", strconv.FormatUint(u.LeasedRuns, 10))
	}
	table.End()
	return nil
}

// line is the JSON form of limits; 0 and default: none was set.
type line struct {
	EventsPerSecond uint64 `json:"eventsPerSecond"`
	BytesPerSecond  uint64 `json:"bytesPerSecond"`
	Streams         uint64 `json:"streams"`
	StoredBytes     uint64 `json:"storedBytes"`
	RunningRuns     uint64 `json:"runningRuns"`
	SelfAttestation string `json:"selfAttestation"`
}

func lineOf(l *runlogv1.TenantLimits) line {
	return line{l.GetEventsPerSecond(), l.GetBytesPerSecond(), l.GetStreams(), l.GetStoredBytes(), l.GetRunningRuns(), selfName(l.GetSelfAttestation())}
}

// used is the JSON form of what a tenant has.
type used struct {
	StoredBytes uint64 `json:"storedBytes"`
	RunningRuns uint64 `json:"runningRuns"`
	Queues      uint64 `json:"queues"`
	QueuedRuns  uint64 `json:"queuedRuns"`
	LeasedRuns  uint64 `json:"leasedRuns"`
}

func usedOf(u *runlogv1.TenantUsage) *used {
	if u == nil {
		return nil
	}
	return &used{u.StoredBytes, u.RunningRuns, u.Queues, u.QueuedRuns, u.LeasedRuns}
}

// text is a limit for people.
func text(limit uint64, absent string) string {
	switch limit {
	case 0:
		return absent
	case math.MaxUint64:
		return "none"
	default:
		return strconv.FormatUint(limit, 10)
	}
}

// selfAttestation is the value of the flag of the one setting that is no amount.
type selfAttestation struct {
	given bool
	value runlogv1.SelfAttestation_Value
}

// selfDefault stands for what the default of the cluster says.
const selfDefault = "default"

// selfName is the setting as the command line has it.
func selfName(v runlogv1.SelfAttestation_Value) string {
	if v == runlogv1.SelfAttestation_VALUE_UNSPECIFIED {
		return selfDefault
	}
	return strings.ToLower(v.String())
}

// String returns the value; empty: the flag is not given.
func (s *selfAttestation) String() string {
	if !s.given {
		return ""
	}
	return selfName(s.value)
}

// Set takes the value from the command line.
func (s *selfAttestation) Set(value string) error {
	for number := range runlogv1.SelfAttestation_Value_name {
		if v := runlogv1.SelfAttestation_Value(number); selfName(v) == value {
			s.given, s.value = true, v
			return nil
		}
	}
	return errors.New("want allowed, forbidden or default")
}

// Type names the value in the help.
func (s *selfAttestation) Type() string { return "value" }

// amount is the value of a flag of a limit.
type amount struct {
	given bool
	value uint64
}

// String returns the value; empty: the flag is not given.
func (m *amount) String() string {
	if !m.given {
		return ""
	}
	return text(m.value, "0")
}

// Set takes the value from the command line.
func (m *amount) Set(value string) error {
	if m.given = true; value == "none" {
		m.value = math.MaxUint64
		return nil
	}
	var size output.ByteSize
	if err := size.Set(value); err != nil {
		return fmt.Errorf("want a whole number, a size such as 20MiB, or none")
	}
	m.value = uint64(size)
	return nil
}

// Type names the value in the help.
func (m *amount) Type() string { return "amount" }

// put replaces a limit if the flag is given.
func (m *amount) put(limit *uint64) {
	if m.given {
		*limit = m.value
	}
}
