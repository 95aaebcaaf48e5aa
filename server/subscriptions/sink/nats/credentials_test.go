package nats

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
	"runlog/server/subscriptions/sink/sinktest"
	"runlog/testbed/await"
)

// guarded starts a server with a stream that wants credentials, and returns some.
func guarded(t *testing.T) (address string, creds []byte) {
	t.Helper()
	operator, account := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(public(t, account))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1}
	accountJWT, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	creds = userOf(t, account)
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public(t, account), accountJWT); err != nil {
		t.Fatal(err)
	}
	system := newKey(t, nkeys.CreateAccount)
	systemJWT, err := jwt.NewAccountClaims(public(t, system)).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	if err := resolver.Store(public(t, system), systemJWT); err != nil {
		t.Fatal(err)
	}
	address, _ = startServer(t, server.Options{TrustedKeys: []string{public(t, operator)}, AccountResolver: resolver, SystemAccount: public(t, system)})
	stream(t, address, jetstream.StreamConfig{Name: "RUNS"}, natsgo.UserCredentialBytes(creds))
	return address, creds
}

// userOf makes the credentials of a user of an account that may not publish for one run.
func userOf(t *testing.T, account nkeys.KeyPair) []byte {
	t.Helper()
	user := newKey(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(public(t, user))
	claims.Pub.Deny.Add("runlog.*.*.denied")
	text, err := claims.Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(text, seed)
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// TestCredentialsBUS7: credentials are read for every connection, so they may come later.
func TestCredentialsBUS7(t *testing.T) {
	t.Parallel()
	address, creds := guarded(t)
	dir := t.TempDir()
	s := open(t, &runlogv1.NatsDelivery{Url: address, SecretRef: "nats.creds"}, Options{Secrets: secret.Of(dir, "")})
	err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
	wantError(t, err, "nats: not connected to", "secret cluster/nats.creds: file does not exist")
	sinktest.Write(t, dir, "cluster/nats.creds", string(creds))
	eventually(t, s, sinktest.Event("run", 1, `{}`))

	// A server refuses a subject in a message that belongs to no publish.
	refusals := make(chan error, 10)
	s.nc.SetErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
		s.setFault(err)
		refusals <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pending := sinktest.Begin(ctx, t, s, sinktest.Event("denied", 2, `{}`))
	await.Receive(t, "the server's refusal", refusals)
	cancel()
	if err := pending.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("want the end of the context, got %v", err)
	}
	wantError(t, s.late(), "no acknowledgement", "Permissions Violation for Publish")

	sinktest.Write(t, dir, "cluster/text", "TOPSECRET")
	bad := open(t, &runlogv1.NatsDelivery{Url: address, SecretRef: "text"}, Options{Secrets: secret.Of(dir, "")})
	err = sinktest.Send(t, bad, sinktest.Event("run", 1, `{}`))
	wantError(t, err, "secret cluster/text: has no user")
	if strings.Contains(err.Error(), "TOPSECRET") {
		t.Errorf("the error has the secret: %v", err)
	}
	none := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	wantError(t, sinktest.Send(t, none, sinktest.Event("run", 1, `{}`)), "nats: not connected to")
}

// TestRefusedCredentialsBUS7: a sink asks a server again that has refused its credentials.
func TestRefusedCredentialsBUS7(t *testing.T) {
	t.Parallel()
	address, creds := guarded(t)
	dir := t.TempDir()
	sinktest.Write(t, dir, "cluster/nats.creds", string(userOf(t, newKey(t, nkeys.CreateAccount))))
	dials := make(chan struct{}, 100)
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		dials <- struct{}{}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	s := open(t, &runlogv1.NatsDelivery{Url: address, SecretRef: "nats.creds"}, Options{Secrets: secret.Of(dir, ""), dial: dial})
	for range 3 { // The library would stop after two refusals.
		await.Receive(t, "a try to connect", dials)
	}
	wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "nats: not connected to", "Authorization Violation")
	sinktest.Write(t, dir, "cluster/nats.creds", string(creds))
	eventually(t, s, sinktest.Event("run", 1, `{}`))
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	text, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
