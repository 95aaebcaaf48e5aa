package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/checkpoint"
)

// TestAwaitKey: what needs the key is done again while the key may come yet, and for keyPatience at
// the most.
func TestAwaitKey(t *testing.T) {
	other := errors.New("another error")
	for name, c := range map[string]struct {
		takes time.Duration // each try
		err   error         // of all tries but the tenth
		gone  bool
		ends  time.Duration // when the caller gives up
		want  time.Duration
		fails bool
	}{
		"comes":          {err: checkpoint.ErrKeyMissing, want: 9 * keyRetry},
		"is there":       {err: nil},
		"cannot":         {err: other, fails: true},
		"gone":           {err: checkpoint.ErrKeyMissing, gone: true, fails: true},
		"slow":           {err: checkpoint.ErrKeyMissing, takes: time.Second, want: keyPatience + time.Second, fails: true},
		"caller gone":    {err: checkpoint.ErrKeyMissing, takes: 10 * keyRetry, ends: time.Second + keyRetry/2, want: 2 * time.Second, fails: true},
		"caller waiting": {err: checkpoint.ErrKeyMissing, ends: keyRetry / 2, want: keyRetry / 2, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{stopping: t.Context()}
				s.keyGone.Store(c.gone)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ends > 0 {
					time.AfterFunc(c.ends, cancel)
				}
				began, tries := time.Now(), 0
				err := s.awaitKey(ctx, func() error {
					time.Sleep(c.takes)
					if tries++; tries == 10 {
						return nil
					}
					return c.err
				})
				if took := time.Since(began); took != c.want || (err != nil) != c.fails || err != nil && !errors.Is(err, c.err) {
					t.Errorf("%v after %s and %d tries", err, took, tries)
				}
			})
		})
	}
}

// TestProveRunAwaitsTheKey: a proof that is asked for while the key is missing is made when there
// is one a moment later.
func TestProveRunAwaitsTheKey(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(o *Options) { seldom(0, o) })
	n.append("run", numbered(1))
	n.prove("run", true)
	proved := make(chan error, 1)
	for waits := false; !waits; {
		n.restart(func() {
			if err := os.RemoveAll(filepath.Join(n.opts.DataDir, keyFile)); err != nil {
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
			if !n.server.keyGone.Load() {
				t.Fatalf("there is no key: %v", err)
			}
		case <-time.After(3 * keyRetry):
			waits = true
		}
	}
	if _, err := n.audits().RotateSigningKey(n.context(), &runlogv1.RotateSigningKeyRequest{OldKeyIsLost: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-proved; err != nil {
		t.Error(err)
	}
}

// TestNobodyKeepsTheKey: while no majority keeps a new key the cluster signs with the old one, and
// who asks for a new one is told why.
func TestNobodyKeepsTheKey(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3, seldom)
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
			eventually(t, "the first key", func() bool {
				_, signed, err := n.server.sign(n.context(), &proof.Statement{Title: "x"})
				return signed && err == nil
			})
			why = full(n)
		}
	}
	_, err := leader.audits().RotateSigningKey(leader.context(), &runlogv1.RotateSigningKeyRequest{})
	says(t, err, contract.ReasonNoLeader, "of 3 voters 1 have it; ")
	says(t, err, contract.ReasonNoLeader, why.Error()[len("checkpoint: "):][:20])
	if keys := leader.signingKeys(); len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
	leader.prove("run", true)
}
