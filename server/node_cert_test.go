package server_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/server"
	"runlog/server/peer"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestNodeCertificateNamesTheNode: a node has the name in its certificate, or does not start and
// leaves its directory without an identity.
func TestNodeCertificateNamesTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := peer.MakeCA(dir, time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.IssueNode(dir, "n1", time.Now(), time.Hour); err != nil {
			t.Fatal(err)
		}
		ca, _ := peer.CAFiles(dir)
		cert, key := peer.NodeFiles(dir, "n1")
		o := servertest.Options(t)
		o.TLS, o.NodeID = server.TLSFiles{CA: ca, Cert: cert, Key: key}, "n2"
		if _, err := server.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), `node "n1"`) {
			t.Errorf("a node with another's certificate: %v", err)
		}
		if _, err := o.FS.Stat(filepath.Join(o.DataDir, "identity.json")); err == nil {
			t.Error("its directory belongs to it already")
		}
		o.NodeID = ""
		n := &servertest.Node{T: t, Opts: o}
		n.Start()
		t.Cleanup(n.Close)
		servertest.WantEqual(t, "name", n.Server.NodeID(), "n1")
		n.Append("run", servertest.NewEvent("RunStarted"))
	})
}
