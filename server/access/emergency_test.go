package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// emergencyCalls is what an operator calls when the cluster has no leader, and how it is answered.
var emergencyCalls = []struct {
	name   string
	call   func(n *servertest.Node, token string) error
	reason contract.Reason // empty: it is answered
	late   bool            // It is recorded once there is a leader.
}{
	{"GetStatus", func(n *servertest.Node, token string) error {
		s, err := n.Clusters().GetStatus(n.Bearing(token), &runlogv1.GetStatusRequest{})
		if err == nil && (s.GetLeaderConfirmed() || len(s.Members) != 3) {
			err = fmt.Errorf("a status of %d members, leader confirmed: %t", len(s.Members), s.GetLeaderConfirmed())
		}
		return err
	}, "", false},
	{"Backup", func(n *servertest.Node, token string) error {
		stream, err := n.Clusters().Backup(n.Bearing(token), &runlogv1.BackupRequest{})
		for manifest := ""; err == nil; {
			var part *runlogv1.BackupResponse
			switch part, err = stream.Recv(); {
			case errors.Is(err, io.EOF) && manifest != "":
				return nil
			case err == nil && part.GetManifest() != "":
				manifest = part.GetManifest()
			}
		}
		return err
	}, "", true},
	{"heap", func(n *servertest.Node, token string) error { return adminGet(n, token, "/debug/pprof/heap") }, "", true},
	{"WhoAmI", func(n *servertest.Node, token string) error {
		_, err := n.Access().WhoAmI(n.Bearing(token), &runlogv1.WhoAmIRequest{})
		return err
	}, "", false},
	{"TransferLeadership", func(n *servertest.Node, token string) error {
		_, err := n.Clusters().TransferLeadership(n.Bearing(token), &runlogv1.TransferLeadershipRequest{})
		return err
	}, contract.ReasonNoLeader, true},
	{"CreateToken", func(n *servertest.Node, token string) error {
		_, err := n.Access().CreateToken(n.Bearing(token), &runlogv1.CreateTokenRequest{
			Name: "x", Tenants: []string{"acme"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}})
		return err
	}, contract.ReasonNoLeader, false},
	{"ListTokens", func(n *servertest.Node, token string) error {
		_, err := n.Access().ListTokens(n.Bearing(token), &runlogv1.ListTokensRequest{})
		return err
	}, contract.ReasonNoLeader, false},
}

// adminGet calls the admin listener.
func adminGet(n *servertest.Node, token, path string) error {
	req, err := http.NewRequestWithContext(n.Context(), http.MethodGet, "http://"+n.Server.Addresses().Admin+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := n.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// late returns the calls that the access log of a day has from another node's own log: decision,
// identity and method of each. Their times must not go backwards.
func late(n *servertest.Node, auditor, day string) (list []string) {
	n.T.Helper()
	resp, err := n.Events.ListEvents(n.Bearing(auditor), &runlogv1.ListEventsRequest{RunId: rpc.AccessRuns + day})
	if err != nil {
		return nil // There may be no leader yet.
	}
	var last time.Time
	for _, e := range resp.Events {
		var d struct {
			Identity, Method, Decision string
			Late                       bool
			CalledAt                   time.Time
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil {
			n.T.Fatal(err)
		}
		if !d.Late {
			continue
		}
		if d.CalledAt.Before(last) || !d.CalledAt.Before(e.PersistedAt.AsTime()) {
			n.T.Errorf("%s was called at %v and stored at %v, after a call at %v", d.Method, d.CalledAt, e.PersistedAt.AsTime(), last)
		}
		last = d.CalledAt
		list = append(list, fmt.Sprint(d.Decision, " ", d.Identity, " ", d.Method[strings.LastIndexByte(d.Method, '/')+1:]))
	}
	return list
}

// TestEmergencySEC13: without a leader, a node answers the calls that an operator needs to find out
// why, refuses unknown tokens alone, and records each call once there is a leader again, in order,
// also if it is restarted before.
func TestEmergencySEC13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := servertest.SecuredNodes(t)
		n := all.Followers()[0]
		everything := n.Token(root, "ops", []string{"*"}, runlogv1.Role_OPERATOR, runlogv1.Role_ADMIN)
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		if _, err := n.Access().WhoAmI(n.Bearing(auditor), &runlogv1.WhoAmIRequest{}); err != nil {
			t.Fatal(err) // The node has both tokens.
		}
		day := time.Now().UTC().Format(time.DateOnly)
		dead := slices.DeleteFunc(slices.Clone(all), func(x *servertest.Node) bool { return x == n })
		dead.Close()
		bubble.Until(t, "the node has no leader", func() bool {
			id, _ := n.Server.Internals().Replica.Node().Leader()
			return id == "" && !n.Server.Internals().Replica.Leading()
		})
		var want []string
		for _, c := range emergencyCalls {
			bubble.Run(t, c.name, func(t testing.TB) {
				switch err := c.call(n, everything); {
				case c.reason != "":
					servertest.Refused(t, err, c.reason)
				case err != nil:
					t.Errorf("without a leader: %v", err)
				}
			})
			if c.late {
				want = append(want, "ALLOWED token:ops "+c.name)
			}
			if c.name == "Backup" {
				want = append(want, "DONE token:ops Backup")
			}
		}
		_, err := n.Clusters().GetStatus(n.Bearing(auditor), &runlogv1.GetStatusRequest{})
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		_, err = n.Clusters().GetStatus(n.Bearing(servertest.FakeToken), &runlogv1.GetStatusRequest{})
		servertest.Refused(t, err, contract.ReasonUnauthenticated)
		// The latter is counted until the node stops.
		want = append(want, "DENIED token:auditor GetStatus", "DENIED  GetStatus")

		n.Close()
		for _, x := range all {
			x.Opts.Registry = nil
		}
		all.Start()
		bubble.Until(t, "the calls are recorded", func() bool { return len(late(n, auditor, day)) >= len(want) })
		n.Restart()
		if got := late(n, auditor, day); !slices.Equal(got, want) {
			t.Errorf("recorded late %q, want %q", got, want)
		}
	})
}

// TestTransferOnFullDiskSEC13: the advice of DISK_LOW, to let another node lead, can be followed
// with access control, at the leader and at a follower.
func TestTransferOnFullDiskSEC13(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"leader", "follower"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				root, hash := auth.NewToken()
				var low [3]atomic.Bool
				all := servertest.StartNodes(t, 3, func(i int, o *server.Options) {
					o.Authenticate, o.AdminToken, o.CheckpointInterval, o.MinFreeBytes = true, hash, time.Hour, 1<<20
					o.DiskFree = func(string) (uint64, error) {
						if low[i].Load() {
							return 1, nil
						}
						return 1 << 30, nil
					}
				})
				for _, n := range all {
					bubble.Until(t, "the members have a secret", func() bool { _, err := tryLimits(n, root); return err == nil })
				}
				leader := all.Leader()
				n := leader
				if at == "follower" {
					n = all.Followers()[0]
				}
				low[slices.Index(all, leader)].Store(true)
				bubble.Until(t, "the leader refuses appends", func() bool {
					_, err := tryLimits(n, root)
					return err != nil && servertest.RefusalOf(t, err).Reason == contract.ReasonDiskLow
				})
				to := all.Followers()[1]
				moved, err := n.Clusters().TransferLeadership(n.Bearing(root), &runlogv1.TransferLeadershipRequest{NodeId: to.Opts.NodeID})
				if err != nil || moved.LeaderId != to.Opts.NodeID {
					t.Fatalf("transferred to %q: %v", moved.GetLeaderId(), err)
				}
				auditor := to.Token(root, "auditor", []string{rpc.AccessTenant}, runlogv1.Role_READER)
				day := time.Now().UTC().Format(time.DateOnly)
				var got []string
				bubble.Until(t, "the call is recorded", func() bool { got = late(to, auditor, day); return len(got) > 0 })
				if want := []string{"ALLOWED token:admin-token-file TransferLeadership"}; !slices.Equal(got, want) {
					t.Errorf("recorded late %q", got)
				}
			})
		})
	}
}
