package kafka

import (
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// faults returns what Check finds, as "field: fault".
func faults(d *runlogv1.KafkaDelivery) (out []string) {
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
	brokers := func(b ...string) func(*runlogv1.KafkaDelivery) {
		return func(d *runlogv1.KafkaDelivery) { d.Brokers = b }
	}
	topic := func(s string) func(*runlogv1.KafkaDelivery) { return func(d *runlogv1.KafkaDelivery) { d.Topic = s } }
	for _, tt := range []struct {
		name string
		set  func(*runlogv1.KafkaDelivery)
		want string // empty: no fault
	}{
		{"plain", func(*runlogv1.KafkaDelivery) {}, ""},
		{"all set", func(d *runlogv1.KafkaDelivery) { d.Tls, d.SecretRef = true, "kafka" }, ""},
		{"several brokers", brokers("a:1", "10.0.0.1:65535", "[::1]:9092"), ""},
		{"longest topic", topic(strings.Repeat("x", 249)), ""},
		{"no broker", brokers(), "brokers: is required"},
		{"17 brokers", brokers(strings.Fields(strings.Repeat("a:1 ", 17))...), "brokers: has 17 brokers"},
		{"empty", brokers("a:1", ""), "brokers[1]: is no address"},
		{"no port", brokers("a"), "brokers[0]: is no address"},
		{"no host", brokers(":9092"), "brokers[0]: is no address"},
		{"port 0", brokers("a:0"), "brokers[0]: has another port"},
		{"port", brokers("a:65536"), "brokers[0]: has another port"},
		{"named port", brokers("a:kafka"), "brokers[0]: has another port"},
		{"URL", brokers("kafka://a:9092"), "brokers[0]: is no address"},
		{"two in one", brokers("a:1,b:2"), "brokers[0]: is no address"},
		{"credentials", brokers("user@a:1"), "brokers[0]: has a character"},
		{"blank", brokers(" a:1"), "brokers[0]: has a character"},
		{"control character", brokers("a\n:1"), "brokers[0]: has a character"},
		{"not UTF-8", brokers("\xff:1"), "brokers[0]: has a character"},
		{"long broker", brokers(strings.Repeat("x", 256) + ":1"), "brokers[0]: is 258 bytes long"},
		{"no topic", topic(""), "topic: is required"},
		{"long topic", topic(strings.Repeat("x", 250)), "topic: is 250 bytes long"},
		{"dot", topic("."), "topic: is a name that Kafka does not allow"},
		{"dots", topic(".."), "topic: is a name that Kafka does not allow"},
		{"blank in the topic", topic("a b"), "topic: has another character"},
		{"umlaut", topic("ä"), "topic: has another character"},
		{"secret", func(d *runlogv1.KafkaDelivery) { d.SecretRef = "a/b" }, "secretRef: has another character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &runlogv1.KafkaDelivery{Brokers: []string{"kafka.example.com:9092"}, Topic: "runs"}
			tt.set(d)
			got := faults(d)
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
	if got := faults(&runlogv1.KafkaDelivery{Brokers: []string{"a", "b"}, SecretRef: "."}); len(got) != 4 {
		t.Errorf("want four faults, got %q", got)
	}
}
