package address

import (
	"strings"
	"testing"
)

// TestAddresses lists what callers write for the address of a node: input, and what is dialled.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"localhost":                 "localhost:7410",
		"localhost:7410":            "localhost:7410",
		" n1.example.com ":          "n1.example.com:7410",
		"http://localhost":          "localhost:7410",
		"http://localhost/":         "localhost:7410",
		"http://host:9999":          "host:9999",
		"HTTP://host":               "host:7410",
		"https://host":              "host:7410",
		"https://host:443/":         "host:443",
		"10.0.0.1":                  "10.0.0.1:7410",
		"::1":                       "[::1]:7410",
		"[::1]":                     "[::1]:7410",
		"[::1]:80":                  "[::1]:80",
		"http://[fe80::1]:80":       "[fe80::1]:80",
		"a,b:1,http://a, a:7410":    "a:7410 b:1",
		"passthrough:///fake":       "passthrough:///fake",
		"dns:///host:7410":          "dns:///host:7410",
		"unix:///run/runlog.socket": "unix:///run/runlog.socket",
		"unix:run/runlog.socket":    "unix:run/runlog.socket",
		"my_host-1":                 "my_host-1:7410",
	} {
		got, err := List(text)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q is %q, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    "it is empty",
		",":                   "it is empty",
		"a,,b":                "it is empty",
		"localhost:":          "no port after the colon",
		":7410":               "it has no host",
		"http://":             "it has no host",
		"host:grpc":           `"grpc" is not a port from 1 to 65535`,
		"host:0":              "not a port",
		"host:65536":          "not a port",
		"host:-1":             "not a port",
		"1:2:3":               "no port",
		"http://host/v1/runs": "more than a host and a port",
		"http://me@host":      "more than a host and a port",
		"http://host?x=1":     "more than a host and a port",
		"host/v1":             "is no host",
		"two words":           "is no host",
		"me@host":             "is no host",
		"http://ho st":        "it is no URL",
		"grpc://host:7410":    "it begins with grpc://",
	} {
		got, err := List(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want a host such as localhost, or host:port") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := Of("https://localhost", 7412); err == nil || !strings.Contains(err.Error(), "leave https:// out") {
		t.Errorf("https:// for a listener without TLS: %q, %v", got, err)
	}
	if got, err := Of("localhost", 7412); err != nil || got != "localhost:7412" {
		t.Errorf("%q, %v", got, err)
	}
}
