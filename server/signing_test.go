package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/datadir"
	"runlog/testbed/bubble"
)

// TestProveRunAwaitsTheKey: a proof that is requested while the key is missing succeeds if the key
// arrives soon after.
func TestProveRunAwaitsTheKey(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t), func(o *Options) { seldom(0, o) })
		n.append("run", numbered(1))
		n.prove("run", true)
		proved := make(chan error, 1)
		for waits := false; !waits; {
			n.restart(func() {
				if err := os.RemoveAll(filepath.Join(n.opts.DataDir, datadir.KeyFile)); err != nil {
					t.Fatal(err)
				}
			})
			go func() {
				_, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
				proved <- err
			}()
			select {
			case err := <-proved:
				// the machine was so slow that the key is known to be gone
				if !slices.Contains(n.server.alerts.Standing(), "AUDIT_KEY_MISSING") {
					t.Fatalf("there is no key: %v", err)
				}
			case <-time.After(300 * time.Millisecond):
				waits = true
			}
		}
		if _, err := n.audits().RotateSigningKey(n.context(), &runlogv1.RotateSigningKeyRequest{OldKeyIsLost: true}); err != nil {
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
		all := startNodes(t, 3, eachOnDisk(t), seldom)
		all[0].mustAppend("run", numbered(1))
		leader := all.leader()
		leader.prove("run", true)
		full := func(n *node) (err error) {
			for i := byte(0); err == nil; i++ {
				err = n.server.keepSigningKey(2, append(make([]byte, 31), i))
			}
			return err
		}
		var why error
		for _, n := range all {
			if n != leader {
				bubble.Until(t, "the first key", func() bool {
					_, signed, err := n.server.signer.Load().Sign(n.context(), &proof.Statement{Title: "x"})
					return signed && err == nil
				})
				why = full(n)
			}
		}
		_, err := leader.audits().RotateSigningKey(leader.context(), &runlogv1.RotateSigningKeyRequest{})
		says(t, err, contract.ReasonNoLeader, "1 of 3 voters have the key; ")
		says(t, err, contract.ReasonNoLeader, why.Error()[len("checkpoint: "):][:20])
		if keys := leader.signingKeys(); len(keys) != 1 {
			t.Errorf("keys %v", keys)
		}
		leader.prove("run", true)
	})
}
