package temporal_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"runlog/engine/temporal/temporaltest"
)

// shared is the server of all tests that do not kill it. Their runs have names of their own.
var shared struct {
	once   sync.Once
	server *temporaltest.Server
	err    error
	dir    string
	spaces atomic.Int32 // that are in use
}

// sharedSpaces are enough for all tests, each scenario of the suite among them.
const sharedSpaces = 64

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Kill()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func sharedTemporal(t testing.TB) *temporaltest.Server {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "temporal"); shared.err == nil {
			shared.server, shared.err = temporaltest.StartIn(shared.dir, sharedSpaces)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// namespace returns one of the shared server that no other test has.
func namespace(t testing.TB) string {
	t.Helper()
	sharedTemporal(t)
	n := int(shared.spaces.Add(1)) - 1
	if n >= sharedSpaces {
		t.Fatalf("the %d namespaces of the server are in use: give it more", sharedSpaces)
	}
	return temporaltest.Namespace(n)
}
