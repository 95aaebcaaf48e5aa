package nats

import (
	"net/url"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/sinktest"
)

// faults returns what Check finds, as "field: fault".
func faults(d *runlogv1.NatsDelivery) (out []string) {
	Check(d, func(field, fault string) {
		if fault != "" {
			out = append(out, field+": "+fault)
		}
	})
	return out
}

// TestCheckBUS2 has one fault each.
func TestCheckBUS2(t *testing.T) {
	t.Parallel()
	address := func(s string) func(*runlogv1.NatsDelivery) { return func(d *runlogv1.NatsDelivery) { d.Url = s } }
	subject := func(s string) func(*runlogv1.NatsDelivery) {
		return func(d *runlogv1.NatsDelivery) { d.Subject = s }
	}
	stream := func(s string) func(*runlogv1.NatsDelivery) { return func(d *runlogv1.NatsDelivery) { d.Stream = s } }
	for _, tt := range []struct {
		name string
		set  func(*runlogv1.NatsDelivery)
		want string // empty: no fault
	}{
		{"plain", func(*runlogv1.NatsDelivery) {}, ""},
		{"several servers", address("nats://a:4222,nats://b,nats://[::1]:4222"), ""},
		{"TLS", address("tls://a:4222,tls://b"), ""},
		{"placeholders in a token", subject("a-{tenant}.b{type}{run}c"), ""},
		{"stream", stream("RUNS_1"), ""},
		{"no URL", address(""), "url: is required"},
		{"long URL", address("nats://" + strings.Repeat("x", 2<<10)), "url: is 2055 bytes long"},
		{"17 servers", address(strings.Repeat("nats://a,", 16) + "nats://a"), "url: has 17 servers"},
		{"no scheme", address("a:4222"), "number 1, that does not begin with nats://"},
		{"websocket", address("ws://a:4222"), "number 1, that does not begin with nats://"},
		{"mixed schemes", address("tls://a,nats://b"), "number 2, that does not begin with tls://"},
		{"mixed schemes the other way round", address("nats://a,tls://b"), "number 2, that does not begin with nats://"},
		{"blank", address("nats://a, nats://b"), "number 2, that does not begin with nats://"},
		{"empty server", address("nats://a,"), "number 2, that does not begin with nats://"},
		{"credentials", address("nats://user:pass@a"), "has credentials"},
		{"no host", address("nats://:4222"), "has no host"},
		{"path", address("nats://a/b"), "has more than a host and a port"},
		{"slash", address("nats://a/"), "has more than a host and a port"},
		{"query", address("nats://a?b"), "has more than a host and a port"},
		{"fragment", address("nats://a#b"), "has more than a host and a port"},
		{"port", address("nats://a:65536"), "has another port"},
		{"port 0", address("nats://a:0"), "has another port"},
		{"no URL at all", address("nats://a b"), "is no URL"},
		{"control character", address("nats://a\x7f"), "is no URL"},
		{"escaped control character", address("nats://a%00"), "is no URL"},
		{"no subject", subject(""), "subject: is required"},
		{"long subject", subject(strings.Repeat("x", 257)), "subject: is 257 bytes long"},
		{"API of JetStream", subject("$JS.API.STREAM.DELETE.{run}"), "subject: is in the name space of NATS itself"},
		{"inbox", subject("_INBOX.x"), "subject: is in the name space of NATS itself"},
		{"empty token", subject("a..b"), "subject: has an empty token"},
		{"leading dot", subject(".a"), "subject: has an empty token"},
		{"trailing dot", subject("a."), "subject: has an empty token"},
		{"star", subject("a.*"), "subject: has a wildcard"},
		{"greater", subject("a.>"), "subject: has a wildcard"},
		{"unknown placeholder", subject("a.{step}"), "subject: has another placeholder"},
		{"open brace", subject("a.{run"), "subject: has another placeholder"},
		{"closing brace", subject("a.run}"), "subject: has another placeholder"},
		{"nested", subject("a.{te{run}nant}"), "subject: has another placeholder"},
		{"blank in the subject", subject("a b"), "subject: has a character other"},
		{"line break", subject("a\r\nPUB b"), "subject: has a character other"},
		{"umlaut", subject("ä"), "subject: has a character other"},
		{"stream with a dot", stream("a.b"), "stream: has a character"},
		{"stream with a blank", stream("a b"), "stream: has a character"},
		{"stream with a line break", stream("a\r\nX: y"), "stream: has a character"},
		{"stream with a slash", stream("a/b"), "stream: has a character"},
		{"long stream", stream(strings.Repeat("x", 256)), "stream: is 256 bytes long"},
		{"secret", func(d *runlogv1.NatsDelivery) { d.SecretRef = "a/b" }, "secretRef: has another character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &runlogv1.NatsDelivery{Url: "nats://example.com:4222", Subject: "runlog.{run}"}
			tt.set(d)
			got := faults(d)
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
	if got := faults(&runlogv1.NatsDelivery{Stream: ".", SecretRef: "."}); len(got) != 4 {
		t.Errorf("want four faults, got %q", got)
	}
}

// FuzzSubjectBUS2: whatever a record is called, its subject has the tokens of the settings, no
// wildcard, and tells different names apart.
func FuzzSubjectBUS2(f *testing.F) {
	f.Add("acme", "StepCompleted", "run-1")
	f.Add("", "*", ">")
	f.Add("a.b", " \r\n", "ü%2E")
	f.Fuzz(func(t *testing.T, tenant, eventType, run string) {
		e := sinktest.Event(run, 1, `{}`)
		e.Record.TenantID, e.Record.Type = tenant, eventType
		got := parseSubject("runlog.{tenant}.x-{type}.{run}").of(e.Record)
		tokens := strings.Split(got, ".")
		if len(tokens) != 4 || tokens[0] != "runlog" {
			t.Fatalf("got %q", got)
		}
		for i, want := range []string{tenant, eventType, run} {
			token := strings.TrimPrefix(tokens[i+1], "x-")
			if i != 1 {
				token = tokens[i+1]
			}
			if token == "" || strings.ContainsAny(token, "*> \t\r\n") {
				t.Errorf("token %q", token)
			}
			if want == "" {
				if token != "%" {
					t.Errorf("an empty text is %q", token)
				}
			} else if back, err := url.PathUnescape(token); err != nil || back != want {
				t.Errorf("%q became %q", want, token)
			}
		}
	})
}
