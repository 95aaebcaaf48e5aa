package server_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/datadir"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestProveRunAwaitsTheKey: a proof that is requested while the key is missing succeeds if the key
// arrives soon after.
func TestProveRunAwaitsTheKey(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		n.Append("run", servertest.Numbered(1))
		n.Prove("run", true)
		proved := make(chan error, 1)
		for waits := false; !waits; {
			n.Restart(func() {
				if err := os.RemoveAll(filepath.Join(n.Opts.DataDir, datadir.KeyFile)); err != nil {
					t.Fatal(err)
				}
			})
			go func() {
				_, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
				proved <- err
			}()
			select {
			case err := <-proved:
				// the machine was so slow that the key is known to be gone
				if !slices.Contains(n.Server.Internals().Alerts.Standing(), "AUDIT_KEY_MISSING") {
					t.Fatalf("there is no key: %v", err)
				}
			case <-time.After(300 * time.Millisecond):
				waits = true
			}
		}
		if _, err := n.Audits().RotateSigningKey(n.Context(), &runlogv1.RotateSigningKeyRequest{OldKeyIsLost: true}); err != nil {
			t.Fatal(err)
		}
		if err := <-proved; err != nil {
			t.Error(err)
		}
	})
}

// TestNobodyKeepsTheKey: while no majority stores a new key, the cluster signs with the old one,
// and the caller of a rotation gets the reason.
func TestNobodyKeepsTheKey(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom)
		all[0].MustAppend("run", servertest.Numbered(1))
		leader := all.Leader()
		leader.Prove("run", true)
		full := func(n *servertest.Node) (err error) {
			for i := byte(0); err == nil; i++ {
				err = n.Server.KeepSigningKey(2, append(make([]byte, 31), i))
			}
			return err
		}
		var why error
		for _, n := range all {
			if n != leader {
				bubble.Until(t, "the first key", func() bool {
					_, signed, err := n.Server.Internals().Signer.Load().Sign(n.Context(), &proof.Statement{Title: "x"})
					return signed && err == nil
				})
				why = full(n)
			}
		}
		_, err := leader.Audits().RotateSigningKey(leader.Context(), &runlogv1.RotateSigningKeyRequest{})
		servertest.Says(t, err, contract.ReasonNoLeader, "1 of 3 voters have the key; ")
		servertest.Says(t, err, contract.ReasonNoLeader, why.Error()[len("checkpoint: "):][:20])
		if keys := leader.SigningKeys(); len(keys) != 1 {
			t.Errorf("keys %v", keys)
		}
		leader.Prove("run", true)
	})
}
