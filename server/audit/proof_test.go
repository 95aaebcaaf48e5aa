package audit_test

import (
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
	"runlog/server"
	"runlog/server/datadir"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// often makes a checkpoint after every change.
func often(_ int, o *server.Options) { o.CheckpointInterval = time.Millisecond }

func signedCheckpoints(n *servertest.Node) []*runlogv1.Checkpoint {
	n.T.Helper()
	var all []*runlogv1.Checkpoint
	for token := ""; ; {
		resp, err := n.Audits().ListCheckpoints(n.Context(), &runlogv1.ListCheckpointsRequest{PageSize: 3, PageToken: token})
		if err != nil {
			n.T.Fatal(err)
		}
		all = append(all, resp.Checkpoints...)
		if token = resp.NextPageToken; token == "" {
			return all
		}
	}
}

// TestKeyOfANewClusterIsListed: a new cluster that is asked for its key lists it, although the
// cluster makes it only then.
func TestKeyOfANewClusterIsListed(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		if keys := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) }).SigningKeys(); len(keys) != 1 {
			t.Errorf("one node lists %d keys", len(keys))
		}
		if keys := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom)[2].SigningKeys(); len(keys) != 1 {
			t.Errorf("a cluster lists %d keys", len(keys))
		}
	})
}

// continued requires checkpoints, newest first, each of which continues the one before.
func continued(n *servertest.Node, list []*runlogv1.Checkpoint) {
	n.T.Helper()
	for i := 1; i < len(list); i++ {
		later, _, err := proof.PeekCheckpoint(list[i-1].Note)
		if err != nil {
			n.T.Fatal(err)
		}
		earlier, _, err := proof.PeekCheckpoint(list[i].Note)
		if err != nil {
			n.T.Fatal(err)
		}
		resp, err := n.Audits().ProveConsistency(n.Context(), &runlogv1.ProveConsistencyRequest{OldSize: earlier.Size, NewSize: later.Size})
		if err != nil {
			n.T.Fatal(err)
		}
		hashes, err := proof.HashesOf(resp.Hashes)
		if err == nil {
			err = proof.CheckConsistency(earlier, later, hashes)
		}
		if err != nil {
			n.T.Errorf("checkpoint %d of %d: %v", i, len(list), err)
		}
	}
}

// TestProveRun: on request a run is proved in its current state, whatever its history. One
// checkpoint answers several concurrent callers.
func TestProveRun(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		for i := range 150 {
			n.Append(fmt.Sprint("run-", i), servertest.Steps("s", 1+i%3)...)
		}
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("empty")}); err != nil {
			t.Fatal(err)
		}
		for i := range 150 {
			if l, c := n.Prove(fmt.Sprint("run-", i), true); l.Head.LastSeq != uint64(1+i%3) || c.Runs < uint64(i) {
				t.Errorf("run %d is proved up to runSeq %d, among %d runs", i, l.Head.LastSeq, c.Runs)
			}
		}
		if l, c := n.Prove("empty", false); l.Head.LastSeq != 0 || c.Runs != 151 {
			t.Errorf("a run without events is proved as %v of %d runs", l, c.Runs)
		}
		made := len(signedCheckpoints(n))
		n.Append("run-7", servertest.Numbered(9))
		if l, _ := n.Prove("run-7", false); l.Head.LastSeq != 2 {
			t.Errorf("proved up to %d by the checkpoint that was there", l.Head.LastSeq)
		}
		if l, _ := n.Prove("run-7", true); l.Head.LastSeq != 3 {
			t.Errorf("proved up to %d by a fresh checkpoint", l.Head.LastSeq)
		}
		if got := len(signedCheckpoints(n)); got != made+1 {
			t.Errorf("%d checkpoints, want %d", got, made+1)
		}
		continued(n, signedCheckpoints(n))
		if over := n.Get("/v1/audit/runs/run-7:prove?fresh=true"); over["leafIndex"] != "7" || len(over["path"].([]any)) != 8 {
			t.Errorf("over HTTP: %v", over)
		}
		if over := n.Get("/v1/audit/checkpoints?pageSize=1"); len(over["checkpoints"].([]any)) != 1 || over["nextPageToken"] == "" {
			t.Errorf("over HTTP: %v", over)
		}
		if over := n.Post("/v1/audit/keys:rotate", "{}"); over["key"].(map[string]any)["number"] != "2" || len(n.Get("/v1/audit/keys")["keys"].([]any)) != 2 {
			t.Errorf("over HTTP: %v", over)
		}
		_, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "nobody", Fresh: true})
		servertest.Says(t, err, contract.ReasonRunNotFound, "nobody")
		_, err = n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{})
		servertest.Says(t, err, contract.ReasonInvalidArgumentField, "runId")
		for _, token := range []string{"x", n.WatchToken("run", 1), n.Position(7)} {
			_, err = n.Audits().ListCheckpoints(n.Context(), &runlogv1.ListCheckpointsRequest{PageToken: token})
			servertest.Says(t, err, contract.ReasonInvalidArgumentField, "pageToken")
		}
	})
}

// TestCheckpointsGoOn: checkpoints follow each other over changes of the leader and restarts, are
// the same on every node, and stop when nothing changes.
func TestCheckpointsGoOn(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), often)
		appended := 0
		var runs []string
		more := func() {
			t.Helper()
			appended++
			runs = append(runs, fmt.Sprint("run-", appended))
			all[appended%3].MustAppend(runs[appended-1], servertest.Numbered(appended))
			bubble.Until(t, "a checkpoint of it", func() bool {
				list := signedCheckpoints(all[0])
				return len(list) > 0 && list[0].Records == uint64(appended)
			})
		}
		more()
		more()
		servertest.MoveLeader(t, all)
		more()
		for _, n := range all {
			n.Restart()
			more()
		}
		list := signedCheckpoints(all[0])
		continued(all[0], list)
		for _, n := range all[1:] {
			for i, c := range signedCheckpoints(n) {
				if c.Note != list[i].Note {
					t.Errorf("checkpoint %d at node %s:\n%s\nat node a:\n%s", i, n.Opts.NodeID, c.Note, list[i].Note)
				}
			}
		}
		if keys := all[1].SigningKeys(); len(keys) != 1 {
			t.Errorf("keys %v", keys)
		}
		// The root is a function of the applied state: every node has it, and every leader signs
		// it.
		_, newest := all[0].Prove("run-1", true)
		for _, n := range all {
			if l, c := n.Prove("run-1", true); l.Head.LastSeq != 1 || c.Heads != newest.Heads || c.Root != newest.Root {
				t.Errorf("node %s proves %v by root %v, want %v", n.Opts.NodeID, l, c.Heads, newest.Heads)
			}
			if got := rootOfStore(n, runs...); got != newest.Heads {
				t.Errorf("node %s has root %v, signed is %v", n.Opts.NodeID, got, newest.Heads)
			}
		}
		for range all {
			servertest.MoveLeader(t, all)
			if _, c := all.Leader().Prove("run-1", false); c.Heads != newest.Heads || c.Root != newest.Root {
				t.Errorf("the next leader signs root %v, not %v", c.Heads, newest.Heads)
			}
		}
	})
}

// rootOfStore computes the root over the applied state of runs, in the order of their creation.
func rootOfStore(n *servertest.Node, runs ...string) tlog.Hash {
	n.T.Helper()
	var level []tlog.Hash
	for _, id := range runs {
		r, err := n.Server.Internals().Replica.Store().Run(id)
		if err != nil {
			n.T.Fatal(err)
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
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom)
		all[0].MustAppend("run", servertest.Numbered(1))
		hasKey := func(n *servertest.Node) bool {
			_, signed, err := n.Server.Internals().Signer.Load().Sign(n.Context(), &proof.Statement{Title: "a test"})
			return err == nil && signed
		}
		for _, n := range all {
			bubble.Until(t, "the key at node "+n.Opts.NodeID, func() bool { return hasKey(n) })
		}
		one := string(readKey(t, all[0]))
		for _, n := range all[1:] {
			if string(readKey(t, n)) != one {
				t.Errorf("node %s has another key", n.Opts.NodeID)
			}
		}
		before := all[1].SigningKeys()[0]
		rotated, err := all[2].Audits().RotateSigningKey(all[2].Context(), &runlogv1.RotateSigningKeyRequest{})
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
		if _, c := all[0].Prove("run", true); c.Runs != 1 {
			t.Errorf("checkpoint %+v", c)
		}
		for _, n := range all {
			if keys := n.SigningKeys(); len(keys) != 2 {
				t.Errorf("node %s has keys %v", n.Opts.NodeID, keys)
			}
			bubble.Until(t, "the new key at node "+n.Opts.NodeID, func() bool { return hasKey(n) })
			if text := string(readKey(t, n)); text == one || strings.Count(text, "number") != 1 {
				t.Errorf("node %s keeps %d keys", n.Opts.NodeID, strings.Count(text, "number"))
			}
		}
		// Two nodes lose the key and get it back.
		for _, n := range all[:2] {
			n.Restart(func() {
				if err := os.Remove(filepath.Join(n.Opts.DataDir, datadir.KeyFile)); err != nil {
					t.Fatal(err)
				}
			})
			bubble.Until(t, "the key back at node "+n.Opts.NodeID, func() bool { return hasKey(n) })
		}
		young := &servertest.Node{T: t, Opts: servertest.DiskOptions(t)}
		young.Opts.NodeID, young.Opts.Join = "young", []string{all[0].Server.Addresses().Raft}
		young.Opts.JoinToken = all[0].JoinToken()
		young.Start()
		t.Cleanup(young.Close)
		bubble.Until(t, "the key at a node that joined", func() bool { return hasKey(young) })
	})
}

func readKey(t testing.TB, n *servertest.Node) []byte {
	t.Helper()
	path := filepath.Join(n.Opts.DataDir, datadir.KeyFile)
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
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		n.Append("run", servertest.Numbered(1))
		first, _ := n.Prove("run", true)
		n.Restart(func() {
			if err := os.WriteFile(filepath.Join(n.Opts.DataDir, datadir.KeyFile), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		bubble.Until(t, "the alert", func() bool {
			return strings.Contains(fmt.Sprint(n.Server.Internals().Alerts.Standing()), "AUDIT_KEY_MISSING")
		})
		if note, signed, err := n.Server.Internals().Signer.Load().Sign(n.Context(), &proof.Statement{Title: "a test"}); err != nil || signed || note != "a test\n\n" {
			t.Errorf("signed %t: %q, %v", signed, note, err)
		}
		_, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
		servertest.Says(t, err, contract.ReasonSigningKeyMissing, "rotate-key")
		_, err = n.Audits().RotateSigningKey(n.Context(), &runlogv1.RotateSigningKeyRequest{})
		servertest.Says(t, err, contract.ReasonSigningKeyMissing, "--old-key-is-lost")
		if keys := n.SigningKeys(); len(keys) != 1 {
			t.Errorf("a rotation that was refused has left keys %v", keys)
		}
		rotated, err := n.Audits().RotateSigningKey(n.Context(), &runlogv1.RotateSigningKeyRequest{OldKeyIsLost: true})
		if err != nil {
			t.Fatal(err)
		}
		if k := rotated.Key; k.Number != 2 || k.Endorsement != "" {
			t.Errorf("the new key is %v", k)
		}
		if names := n.Server.Internals().Alerts.Standing(); len(names) != 0 {
			t.Errorf("alerts %v", names)
		}
		if again, _ := n.Prove("run", true); again.String() != first.String() {
			t.Errorf("the leaf was %v, is %v", first, again)
		}
		continued(n, signedCheckpoints(n))
	})
}

// TestRestoredSigns: a cluster restored from a backup signs with a key of its own. Its checkpoints
// continue those of the old cluster, whose key it lacks.
func TestRestoredSigns(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		old.Append("run", servertest.Numbered(0), servertest.Numbered(1))
		leaf, before := old.Prove("run", true)
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		n := servertest.RestoredFrom(t, repo, "", func(o *server.Options) { servertest.Seldom(0, o) })
		n.Start()
		again, now := n.Prove("run", true)
		if again.String() != leaf.String() || now.Heads != before.Heads || now.Root != before.Root || now.Origin() == before.Origin() || now.Cluster == before.Cluster {
			t.Errorf("proved %v in %+v, before %v in %+v", again, now, leaf, before)
		}
		keys := n.SigningKeys()
		if len(keys) != 2 || keys[1].Endorsement != "" || keys[0].PublicKey != old.SigningKeys()[0].PublicKey ||
			keys[0].CheckpointKey != "" || !strings.HasPrefix(keys[1].CheckpointKey, now.Origin()+"+") {
			t.Errorf("keys %v", keys)
		}
		continued(n, signedCheckpoints(n))
		if len(signedCheckpoints(n)) < 2 || len(n.Server.Internals().Alerts.Standing()) > 0 {
			t.Errorf("%d checkpoints, alerts %v", len(signedCheckpoints(n)), n.Server.Internals().Alerts.Standing())
		}
	})
}

// TestProofAfterRotation: the new key alone is enough to verify a proof that is made after a
// rotation.
func TestProofAfterRotation(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.MustAppend("run", servertest.Numbered(0))
		if _, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		rotated, err := n.Audits().RotateSigningKey(n.Context(), &runlogv1.RotateSigningKeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true})
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
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom, func(_ int, o *server.Options) {
			o.LeaderWait = 200 * time.Millisecond
			o.Raft.ElectionTimeout = 3 * time.Second // for so long it believes to lead
		})
		leader := all.Leader()
		leader.MustAppend("run", servertest.Numbered(0))
		leader.Prove("run", true)
		all.Followers().Close()
		before := leader.Server.Internals().Replica.Node().Leading()
		_, err := leader.Audits().ProveRun(leader.Context(), &runlogv1.ProveRunRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonNoLeader)
		if !before {
			t.Log("it knew already that it does not lead: the test proves little")
		}
	})
}
