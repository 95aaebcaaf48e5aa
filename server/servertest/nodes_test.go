package servertest_test

import (
	"strings"
	"testing"

	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestNodesThatDoNotStart: if one of several nodes fails to start, the others stop waiting and get
// its error.
func TestNodesThatDoNotStart(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		taken, err := servertest.Net(t).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		all := servertest.Nodes{{T: t, Opts: servertest.Options(t)}, {T: t, Opts: servertest.Options(t)}}
		for i, address := range []string{taken.Addr().String(), servertest.FreeAddresses(t, 1)[0]} {
			o := &all[i].Opts
			o.RaftListen, o.BootstrapExpect, o.Join = address, 2, []string{taken.Addr().String()}
		}
		defer all.Close()
		if err := all.TryStart(); err == nil || !strings.Contains(err.Error(), "the port is in use") {
			t.Errorf("nodes of which one has no port: %v", err)
		}
	})
}
