package server

import (
	"fmt"
	"time"

	"runlog/proto/contract"
	"runlog/server/auth"
	"runlog/server/signals"
)

// SignalOptions are the policy of signals.
type SignalOptions struct {
	// Roles are those that may send CANCEL and EMERGENCY_STOP. Default: operator.
	Roles map[string]auth.Roles
	// AcceptUnknown accepts signal types that the contract does not know.
	AcceptUnknown bool
	// PerMinute is how many signals a run may get in a minute. Default: signals.DefaultPerMinute.
	PerMinute int
	// PolicyURL is the address of an external policy; empty: none is asked. PolicyTimeout bounds
	// one call of it. Default: signals.DefaultPolicyTimeout.
	PolicyURL     string
	PolicyTimeout time.Duration
}

// validate returns what is wrong with the options.
func (o *SignalOptions) validate() error {
	for name := range o.Roles {
		if name != contract.SignalCancel && name != contract.SignalEmergencyStop {
			return fmt.Errorf("server: Options.Signals.Roles: signal type %s has roles of its own; only CANCEL and EMERGENCY_STOP can have them", name)
		}
	}
	if o.PolicyURL == "" {
		return nil
	}
	if err := signals.CheckPolicyURL(o.PolicyURL); err != nil {
		return fmt.Errorf("server: Options.Signals.PolicyURL %w", err)
	}
	return nil
}

func (s *Server) openSignals(*parts) any {
	o := &s.opts.Signals
	service := signals.New(signals.Options{
		Node: s.replica, Snapshots: s.projector, Rules: s.rules, Roles: o.Roles, AcceptUnknown: o.AcceptUnknown,
		PerMinute: o.PerMinute, PolicyURL: o.PolicyURL, PolicyTimeout: o.PolicyTimeout, DialPolicy: s.opts.DialOut, Clock: s.opts.Clock, Registry: s.opts.Registry,
	})
	s.onClose(service.Close)
	return service
}
