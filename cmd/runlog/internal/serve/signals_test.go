package serve

import (
	"strings"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
)

// TestSignalRolesFlagSIG3: the flag names types and their roles, and nothing that would have no
// effect.
func TestSignalRolesFlagSIG3(t *testing.T) {
	both, operator := auth.RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR), auth.RolesOf(runlogv1.Role_OPERATOR)
	for text, want := range map[string]map[string]auth.Roles{
		"CANCEL=producer,operator":                         {"CANCEL": both},
		"CANCEL=producer,operator,EMERGENCY_STOP=operator": {"CANCEL": both, "EMERGENCY_STOP": operator},
		"EMERGENCY_STOP=OPERATOR":                          {"EMERGENCY_STOP": operator},
		"producer":                                         nil,
		"PAUSE=producer":                                   nil,
		"CANCEL=reader":                                    nil,
		"CANCEL=":                                          nil,
		"CANCEL":                                           nil,
	} {
		got, err := parseSignalRoles(strings.Split(text, ","))
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v, error %v", text, got, err)
			continue
		}
		for name, roles := range want {
			if len(got) != len(want) || got[name] != roles {
				t.Errorf("%s: %v, want %v", text, got, want)
			}
		}
	}
}

// TestSignalFlags: values that make no sense are errors of the command line.
func TestSignalFlags(t *testing.T) {
	good := signalFlags{unknownTypes: "accept", perMinute: 7, policyURL: "http://127.0.0.1:1/x", timeout: time.Second}
	var opts server.Options
	if err := good.check(&opts); err != nil || !opts.Signals.AcceptUnknown || opts.Signals.PerMinute != 7 ||
		opts.Signals.PolicyURL != good.policyURL || opts.Signals.PolicyTimeout != time.Second {
		t.Errorf("options %+v, error %v", opts.Signals, err)
	}
	for flag, change := range map[string]func(*signalFlags){
		"--signal-unknown-types":  func(f *signalFlags) { f.unknownTypes = "maybe" },
		"--signal-roles":          func(f *signalFlags) { f.roles = []string{"x"} },
		"--signals-per-minute":    func(f *signalFlags) { f.perMinute = 0 },
		"--signal-policy-url":     func(f *signalFlags) { f.policyURL = "policy" },
		"--signal-policy-timeout": func(f *signalFlags) { f.timeout = 0 },
	} {
		f := good
		change(&f)
		if err := f.check(&opts); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
