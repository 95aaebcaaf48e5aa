package session

import (
	"strings"

	"runlog/client/command/output"
)

// Pairs takes the KEY=VALUE of a flag that is repeated.
func Pairs(flag string, list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, output.UsageError("--%s %q is not KEY=VALUE", flag, text)
		}
		m[name] = value
	}
	return m, nil
}
