package kafka

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
)

const (
	maxBrokers     = 16
	maxBrokerBytes = 256
	maxTopicBytes  = 249
)

// Check calls fail for every fault of the settings, with the path of the field below them.
func Check(d *runlogv1.KafkaDelivery, fail func(field, fault string)) {
	if n := len(d.Brokers); n == 0 {
		fail("brokers", "is required: send host:port of at least one broker")
	} else if n > maxBrokers {
		fail("brokers", fmt.Sprintf("has %d brokers: send at most %d", n, maxBrokers))
	}
	for i, broker := range d.Brokers[:min(len(d.Brokers), maxBrokers)] {
		fail(fmt.Sprintf("brokers[%d]", i), brokerFault(broker))
	}
	fail("topic", topicFault(d.Topic))
	if d.SecretRef != "" {
		fail("secretRef", secret.NameFault(d.SecretRef))
	}
}

func brokerFault(broker string) string {
	const form = "send host:port, such as kafka-1.example.com:9092"
	host, port, err := net.SplitHostPort(broker)
	switch number, portErr := strconv.Atoi(port); {
	case len(broker) > maxBrokerBytes:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(broker), maxBrokerBytes)
	case err != nil || host == "":
		return "is no address: " + form
	case portErr != nil || number < 1 || number > 65535:
		return "has another port than 1 to 65535: " + form
	case contract.TextFault(host) != "" || strings.ContainsAny(host, " /@?#\\"):
		return "has a character that no host has: " + form
	default:
		return ""
	}
}

func topicFault(topic string) string {
	const form = `send 1 to 249 letters, digits, ".", "_" and "-"`
	switch {
	case topic == "":
		return "is required: " + form
	case len(topic) > maxTopicBytes:
		return fmt.Sprintf("is %d bytes long: %s", len(topic), form)
	case topic == "." || topic == "..":
		return "is a name that Kafka does not allow: " + form
	}
	for i := range len(topic) {
		if c := topic[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "has another character than those of a topic: " + form
		}
	}
	return ""
}
