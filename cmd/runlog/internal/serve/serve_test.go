package serve

import (
	"os"
	"path/filepath"
	"testing"

	"runlog/client/command/session"
)

// TestServeConfiguration: a flag wins over the environment, which wins over the file.
func TestServeConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "runlog.yaml")
	if err := os.WriteFile(config, []byte("grpc-listen: file:1\nhttp-listen: file:2\nmax-payload-bytes: 1000\njoin: [\"a:1\", \"b:2\"]\nbootstrap-expect: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := &app{Session: &session.Session{Getenv: func(name string) string {
		return map[string]string{"RUNLOG_HTTP_LISTEN": "env:2", "RUNLOG_ADMIN_LISTEN": "env:3"}[name]
	}}}
	flags := a.serveCommand().Flags()
	if err := flags.Parse([]string{"--admin-listen", "flag:3"}); err != nil {
		t.Fatal(err)
	}
	if err := a.configure(flags, config); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"grpc-listen": "file:1", "http-listen": "env:2", "admin-listen": "flag:3",
		"raft-listen": "127.0.0.1:7413", "max-payload-bytes": "1KB",
		"join": "[a:1,b:2]", "bootstrap-expect": "2",
	} {
		if got := flags.Lookup(name).Value.String(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
