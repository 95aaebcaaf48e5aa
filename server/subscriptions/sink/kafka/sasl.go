package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"runlog/server/subscriptions/sink/secret"
)

// mechanism is the SASL mechanism that a secret names. It reads the secret again for every
// connection, so that a password can be replaced.
type mechanism struct {
	secrets secret.Scope
	name    string
}

// Name returns the name of the mechanism. Without a usable secret any one will do, because
// Authenticate then fails.
func (m *mechanism) Name() string {
	current, err := m.current()
	if err != nil {
		return plain.Auth{}.AsMechanism().Name()
	}
	return current.Name()
}

// Authenticate begins a session.
func (m *mechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	current, err := m.current()
	if err != nil {
		return nil, nil, err
	}
	return current.Authenticate(ctx, host)
}

func (m *mechanism) current() (sasl.Mechanism, error) {
	text, err := m.secrets.Read(m.name)
	if err != nil {
		return nil, err
	}
	current, err := parseMechanism(string(text))
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", m.secrets.Path(m.name), err)
	}
	return current, nil
}

// parseMechanism reads mechanism:user:password. A password may have colons. Its errors have nothing
// of the text.
func parseMechanism(text string) (sasl.Mechanism, error) {
	kind, rest, _ := strings.Cut(strings.TrimRight(text, "\r\n"), ":")
	user, password, _ := strings.Cut(rest, ":")
	if user == "" || password == "" || strings.ContainsAny(rest, "\r\n") {
		return nil, errors.New("is not one line mechanism:user:password")
	}
	switch kind {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	default:
		return nil, errors.New("begins with another mechanism than PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")
	}
}
