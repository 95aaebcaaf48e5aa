package server

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/datadir"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

func (n *node) audits() runlogv1.AuditServiceClient { return runlogv1.NewAuditServiceClient(n.conn) }

// haveKey makes the cluster create its signing key, which it otherwise does at the first signature.
func (n *node) haveKey() {
	n.t.Helper()
	if _, signed, err := n.server.signer.Load().Sign(n.context(), &proof.Statement{Title: "a test"}); err != nil || !signed {
		n.t.Fatalf("signed: %t, %v", signed, err)
	}
}

// often makes a checkpoint after every change.
func often(_ int, o *Options) { o.CheckpointInterval = time.Millisecond }

// seldom makes checkpoints on demand only, after the first.
func seldom(_ int, o *Options) { o.CheckpointInterval = time.Hour }

// prove gets the proof of a run, verifies it as an auditor would, and returns the leaf and the
// checkpoint.
func (n *node) prove(runID string, fresh bool) (*runlogv1.RunLeaf, *proof.Checkpoint) {
	n.t.Helper()
	resp, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: runID, Fresh: fresh})
	if err != nil {
		n.t.Fatalf("prove %q: %v", runID, err)
	}
	var keys []proof.Key
	for _, k := range resp.Keys {
		keys = append(keys, proof.Key{PublicKey: k.PublicKey, Endorsement: k.Endorsement})
	}
	_, signer, err := proof.OpenCheckpoint(resp.Checkpoint, keys[len(keys)-1].PublicKey)
	if err != nil {
		n.t.Fatal(err)
	}
	lineage := proof.Lineage(keys, signer)
	trusted, err := proof.Trusted(lineage, lineage[0].PublicKey)
	if err != nil {
		n.t.Fatal(err)
	}
	c, _, err := proof.OpenCheckpoint(resp.Checkpoint, trusted...)
	if err != nil {
		n.t.Fatal(err)
	}
	events, chain, seq := n.list(runID), contract.Digest{}, uint64(0)
	for _, e := range events[:resp.Leaf.Head.LastSeq] {
		seq++
		if e.RunSeq != seq {
			n.t.Fatalf("run %q has runSeq %d as number %d", runID, e.RunSeq, seq)
		}
		if seq == resp.Leaf.Head.LastSeq && e.ChainDigest != resp.Leaf.Head.ChainDigest {
			n.t.Fatalf("the leaf of %q has chain digest %s, its record %s", runID, resp.Leaf.Head.ChainDigest, e.ChainDigest)
		}
	}
	if _, err := hex.Decode(chain[:], []byte(resp.Leaf.Head.ChainDigest)); err != nil {
		n.t.Fatal(err)
	}
	l := resp.Leaf
	head := proof.RunHead{
		RunID: l.RunId, TenantID: l.TenantId, ProjectID: l.ProjectId, EnvironmentID: l.EnvironmentId, PlanID: l.PlanId, PlanVersion: l.PlanVersion,
		CreatedAt: l.CreatedAt.AsTime().UnixNano(), LastSeq: l.Head.LastSeq, Chain: chain,
	}
	if l.Head.PersistedAt != nil {
		head.PersistedAt = l.Head.PersistedAt.AsTime().UnixNano()
	}
	var path tlog.RecordProof
	for _, h := range resp.Path {
		path = append(path, tlog.Hash(h))
	}
	if err := tlog.CheckRecord(path, int64(c.Runs), c.Root, int64(resp.LeafIndex), head.Leaf()); err != nil {
		n.t.Fatalf("the path of %q: %v", runID, err)
	}
	return l, c
}

func (n *node) signedCheckpoints() []*runlogv1.Checkpoint {
	n.t.Helper()
	var all []*runlogv1.Checkpoint
	for token := ""; ; {
		resp, err := n.audits().ListCheckpoints(n.context(), &runlogv1.ListCheckpointsRequest{PageSize: 3, PageToken: token})
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, resp.Checkpoints...)
		if token = resp.NextPageToken; token == "" {
			return all
		}
	}
}

func (n *node) signingKeys() []*runlogv1.SigningKey {
	n.t.Helper()
	resp, err := n.audits().ListSigningKeys(n.context(), &runlogv1.ListSigningKeysRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Keys
}

// TestKeyOfANewClusterIsListed: a new cluster that is asked for its key lists it, although the
// cluster makes it only then.
func TestKeyOfANewClusterIsListed(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		if keys := startNode(t, onDisk(t), func(o *Options) { seldom(0, o) }).signingKeys(); len(keys) != 1 {
			t.Errorf("one node lists %d keys", len(keys))
		}
		if keys := startNodes(t, 3, eachOnDisk(t), seldom)[2].signingKeys(); len(keys) != 1 {
			t.Errorf("a cluster lists %d keys", len(keys))
		}
	})
}

// chained requires checkpoints that follow each other without a gap.
func chained(t testing.TB, list []*runlogv1.Checkpoint) {
	t.Helper()
	for i, c := range list {
		parsed, _, err := proof.PeekCheckpoint(c.Note)
		if err != nil {
			t.Fatal(err)
		}
		var want contract.Digest
		if i+1 < len(list) {
			if want, err = proof.TextDigest(list[i+1].Note); err != nil {
				t.Fatal(err)
			}
		}
		if parsed.Previous != want {
			t.Errorf("checkpoint %d of %d names %v as the one before, which is %v", i, len(list), parsed.Previous, want)
		}
	}
}

// TestProveRun: on request a run is proved in its current state, whatever its history. One
// checkpoint answers several concurrent callers.
func TestProveRun(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t), func(o *Options) { seldom(0, o) })
		for i := range 150 {
			n.append(fmt.Sprint("run-", i), steps("s", 1+i%3)...)
		}
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: newRun("empty")}); err != nil {
			t.Fatal(err)
		}
		for i := range 150 {
			if l, c := n.prove(fmt.Sprint("run-", i), true); l.Head.LastSeq != uint64(1+i%3) || c.Runs < uint64(i) {
				t.Errorf("run %d is proved up to runSeq %d, among %d runs", i, l.Head.LastSeq, c.Runs)
			}
		}
		if l, c := n.prove("empty", false); l.Head.LastSeq != 0 || c.Runs != 151 {
			t.Errorf("a run without events is proved as %v of %d runs", l, c.Runs)
		}
		made := len(n.signedCheckpoints())
		n.append("run-7", numbered(9))
		if l, _ := n.prove("run-7", false); l.Head.LastSeq != 2 {
			t.Errorf("proved up to %d by the checkpoint that was there", l.Head.LastSeq)
		}
		if l, _ := n.prove("run-7", true); l.Head.LastSeq != 3 {
			t.Errorf("proved up to %d by a fresh checkpoint", l.Head.LastSeq)
		}
		if got := len(n.signedCheckpoints()); got != made+1 {
			t.Errorf("%d checkpoints, want %d", got, made+1)
		}
		chained(t, n.signedCheckpoints())
		if over := n.get("/v1/audit/runs/run-7:prove?fresh=true"); over["leafIndex"] != "7" || len(over["path"].([]any)) != 8 {
			t.Errorf("over HTTP: %v", over)
		}
		if over := n.get("/v1/audit/checkpoints?pageSize=1"); len(over["checkpoints"].([]any)) != 1 || over["nextPageToken"] == "" {
			t.Errorf("over HTTP: %v", over)
		}
		if over := n.post("/v1/audit/keys:rotate", "{}"); over["key"].(map[string]any)["number"] != "2" || len(n.get("/v1/audit/keys")["keys"].([]any)) != 2 {
			t.Errorf("over HTTP: %v", over)
		}
		_, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: "nobody", Fresh: true})
		says(t, err, contract.ReasonRunNotFound, "nobody")
		_, err = n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{})
		says(t, err, contract.ReasonInvalidArgumentField, "runId")
		for _, token := range []string{"x", n.watchToken("run", 1), rpc.FormatPosition(7)} {
			_, err = n.audits().ListCheckpoints(n.context(), &runlogv1.ListCheckpointsRequest{PageToken: token})
			says(t, err, contract.ReasonInvalidArgumentField, "pageToken")
		}
	})
}

// TestCheckpointsGoOn: checkpoints follow each other over changes of the leader and restarts, are
// the same on every node, and stop when nothing changes.
func TestCheckpointsGoOn(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t), often)
		appended := 0
		var runs []string
		more := func() {
			t.Helper()
			appended++
			runs = append(runs, fmt.Sprint("run-", appended))
			all[appended%3].mustAppend(runs[appended-1], numbered(appended))
			bubble.Until(t, "a checkpoint of it", func() bool {
				list := all[0].signedCheckpoints()
				return len(list) > 0 && list[0].Events == uint64(appended)
			})
		}
		more()
		more()
		moveLeader(t, all)
		more()
		for _, n := range all {
			n.restart()
			more()
		}
		list := all[0].signedCheckpoints()
		chained(t, list)
		for _, n := range all[1:] {
			for i, c := range n.signedCheckpoints() {
				if c.Note != list[i].Note {
					t.Errorf("checkpoint %d at node %s:\n%s\nat node a:\n%s", i, n.opts.NodeID, c.Note, list[i].Note)
				}
			}
		}
		if keys := all[1].signingKeys(); len(keys) != 1 {
			t.Errorf("keys %v", keys)
		}
		// The root is a function of the applied state: every node has it, and every leader signs
		// it.
		_, newest := all[0].prove("run-1", true)
		for _, n := range all {
			if l, c := n.prove("run-1", true); l.Head.LastSeq != 1 || c.Root != newest.Root {
				t.Errorf("node %s proves %v by root %v, want %v", n.opts.NodeID, l, c.Root, newest.Root)
			}
			if got := n.rootOfStore(runs...); got != newest.Root {
				t.Errorf("node %s has root %v, signed is %v", n.opts.NodeID, got, newest.Root)
			}
		}
		for range all {
			moveLeader(t, all)
			if _, c := all.leader().prove("run-1", false); c.Root != newest.Root {
				t.Errorf("the next leader signs root %v, not %v", c.Root, newest.Root)
			}
		}
	})
}

// rootOfStore computes the root over the applied state of runs, in the order of their creation.
func (n *node) rootOfStore(runs ...string) tlog.Hash {
	n.t.Helper()
	var level []tlog.Hash
	for _, id := range runs {
		r, err := n.server.replica.Store().Run(id)
		if err != nil {
			n.t.Fatal(err)
		}
		h := proof.RunHead{
			RunID: r.RunID, TenantID: r.Scope.TenantID, ProjectID: r.Scope.ProjectID, EnvironmentID: r.Scope.EnvironmentID, PlanID: r.PlanID,
			PlanVersion: r.PlanVersion, CreatedAt: r.CreatedAt, LastSeq: r.LastSeq, PersistedAt: r.PersistedAt, Chain: r.Chain,
		}
		level = append(level, h.Leaf())
	}
	for len(level) > 1 {
		var over []tlog.Hash
		for i := 0; i < len(level); i += 2 {
			if i+1 == len(level) {
				over = append(over, level[i])
			} else {
				over = append(over, tlog.NodeHash(level[i], level[i+1]))
			}
		}
		level = over
	}
	return level[0]
}

// TestSigningKeyReachesAll: a majority has the key when it is made, and every node soon after. So
// does a node that joins, and so do all after the cluster has lost all but one of the nodes that
// had the key.
func TestSigningKeyReachesAll(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t), seldom)
		all[0].mustAppend("run", numbered(1))
		hasKey := func(n *node) bool {
			_, signed, err := n.server.signer.Load().Sign(n.context(), &proof.Statement{Title: "a test"})
			return err == nil && signed
		}
		for _, n := range all {
			bubble.Until(t, "the key at node "+n.opts.NodeID, func() bool { return hasKey(n) })
		}
		one := string(readKey(t, all[0]))
		for _, n := range all[1:] {
			if string(readKey(t, n)) != one {
				t.Errorf("node %s has another key", n.opts.NodeID)
			}
		}
		before := all[1].signingKeys()[0]
		rotated, err := all[2].audits().RotateSigningKey(all[2].context(), &runlogv1.RotateSigningKeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		have := 0 // before anybody looks
		for _, n := range all {
			if strings.Contains(string(readKey(t, n)), `"number":2`) {
				have++
			}
		}
		if have < 2 {
			t.Errorf("of three nodes %d has the new key", have)
		}
		if k := rotated.Key; k.Number != 2 || k.Endorsement == "" || k.PublicKey == before.PublicKey {
			t.Errorf("the new key is %v", k)
		}
		if _, c := all[0].prove("run", true); c.Runs != 1 {
			t.Errorf("checkpoint %+v", c)
		}
		for _, n := range all {
			if keys := n.signingKeys(); len(keys) != 2 {
				t.Errorf("node %s has keys %v", n.opts.NodeID, keys)
			}
			bubble.Until(t, "the new key at node "+n.opts.NodeID, func() bool { return hasKey(n) })
			if text := string(readKey(t, n)); text == one || strings.Count(text, "number") != 1 {
				t.Errorf("node %s keeps %d keys", n.opts.NodeID, strings.Count(text, "number"))
			}
		}
		// Two nodes lose the key and get it back.
		for _, n := range all[:2] {
			n.restart(func() {
				if err := os.Remove(filepath.Join(n.opts.DataDir, datadir.KeyFile)); err != nil {
					t.Fatal(err)
				}
			})
			bubble.Until(t, "the key back at node "+n.opts.NodeID, func() bool { return hasKey(n) })
		}
		young := &node{t: t, opts: diskOptions(t)}
		young.opts.NodeID, young.opts.Join = "young", []string{all[0].server.Addresses().Raft}
		young.opts.JoinToken = all[0].joinToken()
		young.start()
		t.Cleanup(young.close)
		bubble.Until(t, "the key at a node that joined", func() bool { return hasKey(young) })
	})
}

func readKey(t testing.TB, n *node) []byte {
	t.Helper()
	path := filepath.Join(n.opts.DataDir, datadir.KeyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
	}
	return text
}

// TestSigningKeyMissing: while no node has the key, the alert is raised and nothing is signed. Then
// an operator makes a new key, which no old key vouches for.
func TestSigningKeyMissing(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t), func(o *Options) { seldom(0, o) })
		n.append("run", numbered(1))
		first, _ := n.prove("run", true)
		n.restart(func() {
			if err := os.WriteFile(filepath.Join(n.opts.DataDir, datadir.KeyFile), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		bubble.Until(t, "the alert", func() bool { return strings.Contains(fmt.Sprint(n.server.alerts.Standing()), "AUDIT_KEY_MISSING") })
		if note, signed, err := n.server.signer.Load().Sign(n.context(), &proof.Statement{Title: "a test"}); err != nil || signed || note != "a test\n\n" {
			t.Errorf("signed %t: %q, %v", signed, note, err)
		}
		_, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
		says(t, err, contract.ReasonSigningKeyMissing, "rotate-key")
		_, err = n.audits().RotateSigningKey(n.context(), &runlogv1.RotateSigningKeyRequest{})
		says(t, err, contract.ReasonSigningKeyMissing, "--old-key-is-lost")
		if keys := n.signingKeys(); len(keys) != 1 {
			t.Errorf("a rotation that was refused has left keys %v", keys)
		}
		rotated, err := n.audits().RotateSigningKey(n.context(), &runlogv1.RotateSigningKeyRequest{OldKeyIsLost: true})
		if err != nil {
			t.Fatal(err)
		}
		if k := rotated.Key; k.Number != 2 || k.Endorsement != "" {
			t.Errorf("the new key is %v", k)
		}
		if names := n.server.alerts.Standing(); len(names) != 0 {
			t.Errorf("alerts %v", names)
		}
		if again, _ := n.prove("run", true); again.String() != first.String() {
			t.Errorf("the leaf was %v, is %v", first, again)
		}
		chained(t, n.signedCheckpoints())
	})
}

// TestRestoredSigns: a cluster restored from a backup signs with a key of its own. Its checkpoints
// continue those of the old cluster, whose key it lacks.
func TestRestoredSigns(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := startNode(t, onDisk(t), func(o *Options) { seldom(0, o) })
		old.append("run", numbered(0), numbered(1))
		leaf, before := old.prove("run", true)
		repo := newRepository(t)
		old.backUp(repo)
		n := restoredFrom(t, repo, "", func(o *Options) { seldom(0, o) })
		n.start()
		again, now := n.prove("run", true)
		if again.String() != leaf.String() || now.Root != before.Root || now.Cluster == before.Cluster {
			t.Errorf("proved %v in %+v, before %v in %+v", again, now, leaf, before)
		}
		keys := n.signingKeys()
		if len(keys) != 2 || keys[1].Endorsement != "" || keys[0].PublicKey != old.signingKeys()[0].PublicKey {
			t.Errorf("keys %v", keys)
		}
		chained(t, n.signedCheckpoints())
		if len(n.signedCheckpoints()) < 2 || len(n.server.alerts.Standing()) > 0 {
			t.Errorf("%d checkpoints, alerts %v", len(n.signedCheckpoints()), n.server.alerts.Standing())
		}
	})
}

// TestProofAfterRotation: the new key alone is enough to verify a proof that is made after a
// rotation.
func TestProofAfterRotation(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		n.mustAppend("run", numbered(0))
		if _, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		rotated, err := n.audits().RotateSigningKey(n.context(), &runlogv1.RotateSigningKeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := n.audits().ProveRun(n.context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := proof.OpenCheckpoint(got.Checkpoint, rotated.Key.PublicKey); err != nil {
			t.Errorf("a fresh proof is signed with a key that was given up: %v", err)
		}
	})
}

// TestProofOfADeposedLeaderREAD2: a leader that has lost contact to the other voters proves
// nothing. They may have elected another leader, which may have acknowledged more events.
func TestProofOfADeposedLeaderREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t), seldom, func(_ int, o *Options) {
			o.LeaderWait = 200 * time.Millisecond
			o.Raft.ElectionTimeout = 3 * time.Second // for so long it believes to lead
		})
		leader := all.leader()
		leader.mustAppend("run", numbered(0))
		leader.prove("run", true)
		all.followers().close()
		before := leader.server.replica.Node().Leading()
		_, err := leader.audits().ProveRun(leader.context(), &runlogv1.ProveRunRequest{RunId: "run"})
		refused(t, err, contract.ReasonNoLeader)
		if !before {
			t.Log("it knew already that it does not lead: the test proves little")
		}
	})
}
