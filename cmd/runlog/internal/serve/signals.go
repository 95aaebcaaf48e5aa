package serve

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/signals"
)

// signalFlags are the flags of the policy of signals.
type signalFlags struct {
	unknownTypes string
	roles        []string
	perMinute    int
	policyURL    string
	timeout      time.Duration
}

func (s *signalFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.unknownTypes, "signal-unknown-types", "refuse", "signal types that are not in the contract: accept or refuse")
	f.StringSliceVar(&s.roles, "signal-roles", nil, "roles that may send CANCEL or EMERGENCY_STOP, such as CANCEL=producer,operator (default operator)")
	f.IntVar(&s.perMinute, "signals-per-minute", signals.DefaultPerMinute, "how many signals a run may get in a minute")
	f.StringVar(&s.policyURL, "signal-policy-url", "", "address of a policy that is asked about each signal before it is accepted")
	f.DurationVar(&s.timeout, "signal-policy-timeout", signals.DefaultPolicyTimeout, "how long one call of the signal policy may take")
	session.Complete(cmd, "signal-unknown-types", "accept", "refuse")
}

// check checks the flags, and puts them into the options.
func (s *signalFlags) check(opts *server.Options) (err error) {
	accept, err := choice("signal-unknown-types", s.unknownTypes, "refuse", "accept")
	if err != nil {
		return err
	}
	roles, err := parseSignalRoles(s.roles)
	switch {
	case err != nil:
		return err
	case s.perMinute < 1:
		return output.UsageError("--signals-per-minute %d is not positive", s.perMinute)
	case s.timeout <= 0:
		return output.UsageError("--signal-policy-timeout %s is not positive", s.timeout)
	}
	if s.policyURL != "" {
		if err := signals.CheckPolicyURL(s.policyURL); err != nil {
			return output.UsageError("--signal-policy-url %v", err)
		}
	}
	opts.Signals = server.SignalOptions{Roles: roles, AcceptUnknown: accept, PerMinute: s.perMinute, PolicyURL: s.policyURL, PolicyTimeout: s.timeout}
	return nil
}

// parseSignalRoles parses TYPE=role,role,TYPE=role. Only producers and operators may call at all.
func parseSignalRoles(list []string) (map[string]auth.Roles, error) {
	roles := map[string]auth.Roles{}
	signalType := ""
	for _, item := range list {
		name, role, begins := strings.Cut(item, "=")
		if begins {
			signalType = name
		} else {
			role = item
		}
		if signalType != contract.SignalCancel && signalType != contract.SignalEmergencyStop {
			return nil, output.UsageError("--signal-roles: %q is not CANCEL or EMERGENCY_STOP, followed by = and roles", item)
		}
		r := auth.ParseRole(role)
		if r != runlogv1.Role_PRODUCER && r != runlogv1.Role_OPERATOR {
			return nil, output.UsageError("--signal-roles: %q is not producer or operator", role)
		}
		roles[signalType] |= auth.RolesOf(r)
	}
	return roles, nil
}
