package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestTokenStaysSecretSEC1: a token goes to another machine over TLS only, unless Insecure allows
// it, also to a leader that a node names. No error and no value of the package shows it.
func TestTokenStaysSecretSEC1(t *testing.T) {
	const token = "rlk_secret"
	for _, test := range []struct {
		target string
		opts   Options
		sent   bool
	}{
		{"localhost", Options{}, true},
		{"127.0.0.1:7410", Options{}, true},
		{"http://[::1]:7410", Options{}, true},
		{"unix:///run/runlog.socket", Options{}, true},
		{"https://runlog.example.com", Options{}, true},
		{"runlog.example.com", Options{Insecure: true}, true},
		{"runlog.example.com", Options{}, false},
		{"http://10.0.0.1", Options{}, false},
		{"localhost,n2", Options{}, false},
		{"localhost.example.com", Options{}, false},
		{"dns:///localhost:7410", Options{}, false},
	} {
		test.opts.Token = token
		c, err := Dial(test.target, test.opts)
		if (err == nil) != test.sent || err != nil && (!errors.Is(err, ErrPlainToken) || strings.Contains(err.Error(), token)) {
			t.Errorf("%s, %v: %v", test.target, test.opts.Insecure, err)
		}
		if err != nil {
			continue
		}
		c.nodes.learn("other.example.com:7410")
		if plain := !strings.HasPrefix(test.target, "https") && !test.opts.Insecure; plain == (len(c.nodes.mu.learned) > 0) {
			t.Errorf("%s: another leader is connected to: %v", test.target, !plain)
		}
		_ = c.Close()
	}
	if _, err := Dial("localhost", Options{Token: token + "\n"}); err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("a token with a line break: %v", err)
	}
	if _, err := Dial("https://a,b", Options{}); err == nil || !strings.Contains(err.Error(), "before all of them") {
		t.Errorf("mixed addresses: %v", err)
	}
	if text := fmt.Sprint(bearerToken(token)); strings.Contains(text, token) {
		t.Errorf("formatted: %s", text)
	}
}

// TestDialRefusesAddress: what package address refuses is not dialled.
func TestDialRefusesAddress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "two words", "grpc://host:7410"} {
		if c, err := Dial(text, Options{}); err == nil {
			_ = c.Close()
			t.Errorf("%q is dialled", text)
		}
	}
}
