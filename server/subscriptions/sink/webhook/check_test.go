package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// faults returns what Check finds, as "field: fault".
func faults(d *runlogv1.WebhookDelivery) (out []string) {
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
	header := func(name, value string) func(*runlogv1.WebhookDelivery) {
		return func(d *runlogv1.WebhookDelivery) { d.Headers = map[string]string{name: value} }
	}
	address := func(url string) func(*runlogv1.WebhookDelivery) {
		return func(d *runlogv1.WebhookDelivery) { d.Url = url }
	}
	timeout := func(d time.Duration) func(*runlogv1.WebhookDelivery) {
		return func(w *runlogv1.WebhookDelivery) { w.Timeout = durationpb.New(d) }
	}
	private := func(url string) func(*runlogv1.WebhookDelivery) {
		return func(d *runlogv1.WebhookDelivery) { d.Url, d.AllowPrivate = url, true }
	}
	for _, tt := range []struct {
		name string
		set  func(*runlogv1.WebhookDelivery)
		want string // empty: no fault
	}{
		{"https", func(*runlogv1.WebhookDelivery) {}, ""},
		{"http with a port and a query", address("http://example.com:8080/a?b=c"), ""},
		{"IPv6", address("https://[2606:4700::1]:443/"), ""},
		{"all set", func(d *runlogv1.WebhookDelivery) {
			d.SecretRef, d.Timeout, d.Binary = "hook", durationpb.New(time.Second), true
			d.Headers = map[string]string{"Authorization": "Bearer x", "X-Empty": ""}
		}, ""},
		{"shortest timeout", timeout(100 * time.Millisecond), ""},
		{"longest timeout", timeout(time.Minute), ""},
		{"private and allowed", private("http://10.0.0.1/"), ""},
		{"no URL", address(""), "url: is required"},
		{"long URL", address("https://example.com/" + strings.Repeat("x", 2<<10)), "url: is 2068 bytes long"},
		{"not parsed", address("https://exa mple.com"), "url: is no URL"},
		{"control character", address("https://example.com/\x00"), "url: is no URL"},
		{"not UTF-8", address("https://example.com/\xff"), "url: is no URL"},
		{"scheme", address("file:///etc/passwd"), `url: is of the scheme "file"`},
		{"no scheme", address("example.com"), `url: is of the scheme ""`},
		{"opaque", address("https:example.com"), "url: has no host"},
		{"no host", address("https:///x"), "url: has no host"},
		{"only a port", address("https://:443/"), "url: has no host"},
		{"credentials", address("https://user:pass@example.com/"), "url: has credentials"},
		{"user", address("https://user@example.com/"), "url: has credentials"},
		{"fragment", address("https://example.com/#x"), "url: has a fragment"},
		{"empty fragment", address("https://example.com/#"), "url: has a fragment"},
		{"port", address("https://example.com:65536/"), `url: has the port "65536"`},
		{"port 0", address("https://example.com:0/"), `url: has the port "0"`},
		{"private address", address("http://10.0.0.1/"), "url: has a private address"},
		{"metadata service", address("http://169.254.169.254/latest"), "url: has a link-local address"},
		{"mapped address", address("http://[::ffff:8.8.8.8]/"), "url: has an IPv4-mapped address"},
		{"zone", address("http://[fe80::1%25eth0]/"), "url: has a link-local address"},
		{"secret", func(d *runlogv1.WebhookDelivery) { d.SecretRef = "../x" }, "secretRef: has another character"},
		{"timeout 0", timeout(0), "timeout: is not between 100ms and 1m0s"},
		{"short timeout", timeout(99 * time.Millisecond), "timeout: is not between"},
		{"long timeout", timeout(time.Minute + 1), "timeout: is not between"},
		{"invalid timeout", func(d *runlogv1.WebhookDelivery) { d.Timeout = &durationpb.Duration{Seconds: 1, Nanos: -1} }, "timeout: is not between"},
		{"header without a name", header("", "x"), `headers[""]: is no name`},
		{"header with a blank", header("X Y", "x"), `headers["X Y"]: is no name`},
		{"header with a colon", header(":method", "x"), "is no name of a header"},
		{"header with a line break", header("X\r\nY", "x"), "is no name of a header"},
		{"long name", header(strings.Repeat("x", 129), "x"), "has a name of 129 bytes"},
		{"long value", header("X", strings.Repeat("x", 4097)), `headers["X"]: has a value of 4097 bytes`},
		{"value with a line break", header("X", "a\r\nY: b"), `headers["X"]: has a control character`},
		{"signature", header("webhook-Signature", "x"), `headers["webhook-Signature"]: is set by the server`},
		{"CloudEvents", header("ce-id", "x"), "is set by the server"},
		{"content type", header("CONTENT-TYPE", "x"), "is set by the server"},
		{"host", header("host", "x"), "is set by the server"},
		{"length", header("Content-Length", "1"), "is set by the server"},
		{"hop by hop", header("transfer-encoding", "chunked"), "is set by the server"},
		{"proxy", header("Proxy-Authorization", "x"), "is set by the server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &runlogv1.WebhookDelivery{Url: "https://example.com/hook"}
			tt.set(d)
			got := faults(d)
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
}

// TestCheckAllBUS2 has all faults at once, in an order that does not change.
func TestCheckAllBUS2(t *testing.T) {
	t.Parallel()
	d := &runlogv1.WebhookDelivery{Url: "x", SecretRef: ".", Timeout: durationpb.New(0), Headers: map[string]string{"X-A": "", "x-a": "", "te": "\n"}}
	for i := range 14 {
		d.Headers[fmt.Sprint("n", i)] = ""
	}
	want := []string{
		`url: is of the scheme ""`, `secretRef: is "."`, "headers: has 17 headers", `headers["te"]: is set by the server`,
		`headers["te"]: has a control character`, `headers["x-a"]: appears twice`, "timeout:",
	}
	for range 5 {
		got := faults(d)
		if len(got) != len(want) {
			t.Fatalf("want %q, got %q", want, got)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("want %q, got %q", want[i], got[i])
			}
		}
	}
}
