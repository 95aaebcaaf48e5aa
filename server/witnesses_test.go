package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/audit/witness"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// witnessed is a witness on the network of a test. Until follow is called it follows no log.
type witnessed struct {
	t        *testing.T
	cosigner *proof.Cosigner
	url      string
	now      atomic.Pointer[witness.Witness]
}

func newWitnessed(t *testing.T, name string, seed byte) *witnessed {
	t.Helper()
	cosigner, err := proof.NewCosigner(name, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	l, err := servertest.Net(t).Listen("tcp", servertest.Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witnessed{t: t, cosigner: cosigner, url: "http://" + l.Addr().String()}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if now := w.now.Load(); now != nil {
			now.ServeHTTP(rw, r)
		} else {
			http.NotFound(rw, r)
		}
	})}}
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if now := w.now.Load(); now != nil {
			_ = now.Close()
		}
	})
	return w
}

// follow makes the witness follow the log of a node.
func (w *witnessed) follow(n *servertest.Node) {
	w.t.Helper()
	now, err := witness.New(witness.Options{
		Cosigner: w.cosigner, Logs: []string{newestKey(n)}, State: filepath.Join(w.t.TempDir(), "state"), Clock: time.Now,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if before := w.now.Swap(now); before != nil {
		_ = before.Close()
	}
}

func newestKey(n *servertest.Node) string {
	keys := n.SigningKeys()
	return keys[len(keys)-1].PublicKey
}

// TestWitnessesOfAClusterTR4: the leader has each checkpoint signed by all witnesses, also after
// the leadership has moved and after a restore. Lists, proofs of runs and the file of the log have
// the signatures on every node, and a policy that asks for all of them holds.
func TestWitnessesOfAClusterTR4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		one, two := newWitnessed(t, "one.example/w", 11), newWitnessed(t, "two.example/w", 12)
		text := "witness one " + one.cosigner.Key().String() + " " + one.url + "\nwitness two " + two.cosigner.Key().String() + " " + two.url + "\n" +
			"group both all one two\nquorum both\n"
		p, err := policy.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		asking := func(o *server.Options) { o.CheckpointInterval, o.Witnesses = time.Minute, p.Endpoints() }
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), func(_ int, o *server.Options) { asking(o) })
		leader := all.Leader()
		leader.Append("run", servertest.Numbered(1))
		one.follow(leader)
		two.follow(leader)
		key := newestKey(leader)
		newest := func(n *servertest.Node) *runlogv1.Checkpoint {
			resp, err := n.Audits().ListCheckpoints(n.Context(), &runlogv1.ListCheckpointsRequest{PageSize: 1})
			if err != nil || len(resp.GetCheckpoints()) == 0 {
				return &runlogv1.Checkpoint{}
			}
			return resp.Checkpoints[0]
		}
		held := func(note string) bool {
			r, err := p.Verify(note, key)
			return err == nil && r.Held
		}
		signed := func(n *servertest.Node, records uint64) {
			t.Helper()
			bubble.Until(t, "both witnesses have signed", func() bool {
				c := newest(n)
				return c.GetRecords() == records && held(c.GetNote())
			})
		}
		signed(leader, 1)
		first := newest(leader)
		leader.Append("run", servertest.Numbered(2))
		if _, err := leader.Clusters().TransferLeadership(leader.Context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			signed(n, 2)
			if got := n.HTTP(http.MethodGet, "/log/checkpoint", ""); !held(string(got.Body)) {
				t.Errorf("file of the log:\n%s", got.Body)
			}
		}
		bubble.Until(t, "a proof of the run under a checkpoint that all have signed", func() bool {
			proved, err := all.Leader().Audits().ProveRun(t.Context(), &runlogv1.ProveRunRequest{RunId: "run"})
			return err == nil && held(proved.GetCheckpoint())
		})
		for _, n := range all {
			if alerts := strings.Join(n.Server.Internals().Alerts.Standing(), " "); strings.Contains(alerts, "WITNESS") {
				t.Errorf("alerts %s", alerts)
			}
		}
		leader = all.Leader()
		repo := servertest.NewRepository(t)
		leader.BackUp(repo)
		restored := servertest.RestoredFrom(t, repo, "", asking)
		restored.Start()
		restored.Append("run", servertest.Numbered(3))
		// It is another log, with a key of its own.
		bubble.Until(t, "a key", func() bool { return newestKey(restored) != key })
		one.follow(restored)
		two.follow(restored)
		key = newestKey(restored)
		signed(restored, 3)
		if c := newest(restored); c.GetOrigin() == first.GetOrigin() {
			t.Errorf("the restored cluster signs as %s", c.GetOrigin())
		}
	})
}
