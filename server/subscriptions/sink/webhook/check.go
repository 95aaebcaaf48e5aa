package webhook

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"runlog/client/transport/publicaddress"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
)

const (
	maxURLBytes             = 2 << 10
	maxHeaders              = 16
	maxHeaderName           = 128
	maxHeaderValue          = 4 << 10
	minTimeout, mostTimeout = 100 * time.Millisecond, 60 * time.Second
)

// Check calls fail for every fault of the settings, with the path of the field below them.
func Check(d *runlogv1.WebhookDelivery, fail func(field, fault string)) {
	fail("url", urlFault(d.Url, d.AllowPrivate))
	if d.SecretRef != "" {
		fail("secretRef", secret.NameFault(d.SecretRef))
	}
	if n := len(d.Headers); n > maxHeaders {
		fail("headers", fmt.Sprintf("has %d headers: send at most %d", n, maxHeaders))
	}
	checkHeaders(d.Headers, fail)
	if d.Timeout != nil {
		if t := d.Timeout.AsDuration(); d.Timeout.CheckValid() != nil || t < minTimeout || t > mostTimeout {
			fail("timeout", fmt.Sprintf("is not between %v and %v", minTimeout, mostTimeout))
		}
	}
}

func urlFault(address string, allowPrivate bool) string {
	const form = "send an address such as https://example.com/runlog"
	if address == "" {
		return "is required: " + form
	}
	if len(address) > maxURLBytes {
		return fmt.Sprintf("is %d bytes long: send at most %d", len(address), maxURLBytes)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || !utf8.ValidString(address):
		return "is no URL: " + form
	case u.Scheme != "https" && u.Scheme != "http":
		return "is of the scheme " + contract.Quote(u.Scheme) + ": " + form
	case u.Hostname() == "":
		return "has no host: " + form
	case u.User != nil:
		return "has credentials, which everyone could read: send them in headers"
	case u.Fragment != "" || strings.HasSuffix(address, "#"):
		return "has a fragment, which no request carries: leave it out"
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return "has the port " + contract.Quote(u.Port()) + ": use one from 1 to 65535"
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !allowPrivate {
		if kind := publicaddress.Refused(a); kind != "" {
			return "has " + kind + " address: use a public one, or let a caller of all tenants set allowPrivate"
		}
	}
	return ""
}

func checkHeaders(headers map[string]string, fail func(field, fault string)) {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names) // The order of violations does not change from call to call.
	seen := map[string]bool{}
	for _, name := range names {
		field := "headers[" + contract.Quote(name) + "]"
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case len(name) > maxHeaderName:
			fail(field, fmt.Sprintf("has a name of %d bytes: send at most %d", len(name), maxHeaderName))
		case !httpguts.ValidHeaderFieldName(name):
			fail(field, "is no name of a header")
		case isReserved(canonical):
			fail(field, "is set by the server: leave it out")
		case seen[canonical]:
			fail(field, "appears twice, in other letters: keep one")
		default:
			seen[canonical] = true
		}
		switch value := headers[name]; {
		case len(value) > maxHeaderValue:
			fail(field, fmt.Sprintf("has a value of %d bytes: send at most %d", len(value), maxHeaderValue))
		case !httpguts.ValidHeaderFieldValue(value):
			fail(field, "has a control character in its value: remove it")
		}
	}
}

// reservedHeaders belong to HTTP itself or to the form of the body.
var reservedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Expect", "Host", "Http2-Settings",
	"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// reservedPrefixes are those of Standard Webhooks, of CloudEvents and of proxies.
var reservedPrefixes = []string{"Webhook-", "Ce-", "Proxy-"}

func isReserved(canonical string) bool {
	return slices.Contains(reservedHeaders, canonical) ||
		slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(canonical, p) })
}
