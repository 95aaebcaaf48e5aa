// Package policyfile reads files with policies of witnesses (C2SP tlog-policy).
package policyfile

import (
	"io"
	"os"

	"runlog/audit/policy"
	"runlog/client/command/output"
)

// Read reads the policy in a file that a flag names. A fault is one of usage.
func Read(flag, path string) (*policy.Policy, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, output.UsageError("--%s %s: %v", flag, path, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, policy.MaxText+1))
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, output.UsageError("--%s %s: %v", flag, path, err)
	}
	return p, nil
}
