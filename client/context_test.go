package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/client/contexts"
)

// TestDialContext: a program calls the nodes of a stored context with its token.
func TestDialContext(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	if _, err := DialContext("", Options{}); err == nil || !strings.Contains(err.Error(), "runlog context add") {
		t.Errorf("without a file: %v", err)
	}
	token := filepath.Join(home, "token")
	if err := os.WriteFile(token, []byte("secret-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := &contexts.File{Current: "here", Contexts: map[string]*contexts.Connection{
		"here":   {Server: "passthrough:///here", TokenFile: token, Insecure: true},
		"away":   {Server: "runlog.example.com", TokenFile: token},
		"wrong":  {Server: "https://localhost:1", CACert: filepath.Join(home, "absent")},
		"nobody": {Server: "localhost:1", TokenFile: filepath.Join(home, "absent")},
	}}
	if err := all.Write(contexts.Path(os.Getenv)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"away": "plain text", "wrong": "cacert", "nobody": "token-file", "absent": "no context"} {
		if _, err := DialContext(name, Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-one") {
			t.Errorf("%s: %v, want one about %s", name, err, want)
		}
	}
	fake, sent := &fakeServer{}, ""
	dial := dialerOf(t, map[string]*fakeServer{"here": fake}, grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			sent = strings.Join(md.Get("authorization"), " ")
			return next(ctx, req)
		}))
	c, err := DialContext("", Options{MaxAttempts: 1, DialOptions: []grpc.DialOption{dial}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.VerifyRun(t.Context(), "r") // the fake has no answer
	if sent != "Bearer secret-one" {
		t.Errorf("the server got %q", sent)
	}
}
