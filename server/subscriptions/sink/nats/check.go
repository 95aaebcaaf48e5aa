package nats

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
)

const (
	schemePlain = "nats://"
	schemeTLS   = "tls://"

	maxURLBytes     = 2 << 10
	maxServers      = 16
	maxSubjectBytes = 256
	maxStreamBytes  = 255
)

// Check calls fail for every fault of the settings, with the path of the field below them.
func Check(d *runlogv1.NatsDelivery, fail func(field, fault string)) {
	fail("url", urlFault(d.Url))
	fail("subject", subjectFault(d.Subject))
	if d.Stream != "" {
		fail("stream", streamFault(d.Stream))
	}
	if d.SecretRef != "" {
		fail("secretRef", secret.NameFault(d.SecretRef))
	}
}

func urlFault(list string) string {
	const form = "send nats://host:port, or several with commas between"
	switch {
	case list == "":
		return "is required: " + form
	case len(list) > maxURLBytes:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(list), maxURLBytes)
	}
	servers := strings.Split(list, ",")
	if len(servers) > maxServers {
		return fmt.Sprintf("has %d servers: send at most %d", len(servers), maxServers)
	}
	scheme := schemePlain
	if strings.HasPrefix(list, schemeTLS) {
		scheme = schemeTLS
	}
	for i, server := range servers {
		if fault := serverFault(server, scheme); fault != "" {
			return fmt.Sprintf("has a server, number %d, that %s: %s", i+1, fault, form)
		}
	}
	return ""
}

func serverFault(server, scheme string) string {
	if !strings.HasPrefix(server, scheme) {
		return "does not begin with " + scheme + " as it must, or as the first one does"
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return "is no URL"
	case u.User != nil:
		return "has credentials, which everyone could read; use secretRef"
	case u.Hostname() == "":
		return "has no host"
	case strings.TrimPrefix(server, scheme) != u.Host:
		return "has more than a host and a port"
	case contract.TextFault(u.Host) != "" || strings.ContainsAny(u.Host, " \\"):
		return "has a character that no host has"
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return "has another port than 1 to 65535"
	}
	return ""
}

func subjectFault(s string) string {
	const form = "send tokens with dots between, such as runlog.{tenant}.{type}"
	switch {
	case s == "":
		return "is required: " + form
	case len(s) > maxSubjectBytes:
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxSubjectBytes)
	case strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX."):
		return "is in the name space of NATS itself: " + form
	}
	plain := s
	for placeholder := range placeholders {
		plain = strings.ReplaceAll(plain, placeholder, "x")
	}
	for token := range strings.SplitSeq(plain, ".") {
		if token == "" {
			return "has an empty token: " + form
		}
		for i := range len(token) {
			switch c := token[i]; {
			case c == '{' || c == '}':
				return "has another placeholder than {tenant}, {type} and {run}"
			case c == '*' || c == '>':
				return "has a wildcard: " + form
			case c <= ' ' || c >= 0x7f:
				return "has a character other than printable ASCII: " + form
			}
		}
	}
	return ""
}

func streamFault(s string) string {
	if len(s) > maxStreamBytes {
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxStreamBytes)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`.*>/\`, c) >= 0 {
			return `has a character that no name of a stream has: white space, ".", "*", ">", "/", "\" or one that is not ASCII`
		}
	}
	return ""
}
