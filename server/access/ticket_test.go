package access_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestWatchTicketsSEC2SEC5: a page whose EventSource cannot send credentials watches with a ticket
// in the address. The ticket is good once, for a watch, and for what its owner may see; the watch
// ends when the token of its owner is revoked. No log has the ticket.
func TestWatchTicketsSEC2SEC5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		often := *n.Server.Internals().Access.Load()
		often.CheckEvery = 20 * time.Millisecond
		n.Server.Internals().Access.Store(&often)
		if _, err := n.Events.AppendEvents(n.Bearing(root), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		made, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
			Name: "ui", Tenants: []string{"tenant"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER},
		})
		if err != nil {
			t.Fatal(err)
		}
		stranger := n.Token(root, "stranger", []string{"other"}, runlogv1.Role_READER)
		ticket := func(token string) string {
			t.Helper()
			return n.HTTP("POST", "/v1/watch-tickets", "{}", "Authorization", "Bearer "+token).OK(t)["ticket"].(string)
		}
		n.HTTP("POST", "/v1/watch-tickets", "{}").Refused(t, contract.ReasonUnauthenticated)

		one := ticket(made.Token)
		watch := n.HTTPStream(n.Context(), "GET", "/v1/runs/run:watch?afterSeq=0&ticket="+one, "", "Accept", "text/event-stream")
		defer watch.Body.Close()
		lines := bufio.NewScanner(watch.Body)
		if !lines.Scan() || watch.StatusCode != http.StatusOK || !strings.HasPrefix(watch.Header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("HTTP %d: %s", watch.StatusCode, lines.Text())
		}
		n.HTTP("GET", "/v1/runs/run:watch?ticket="+one, "").Refused(t, contract.ReasonUnauthenticated)
		for attack, c := range map[string]struct {
			target string
			header []string
			reason contract.Reason
		}{
			"another call":               {"/v1/runs/run?ticket=TICKET", nil, contract.ReasonUnauthenticated},
			"another stream":             {"/v1/runs/run/events:read?ticket=TICKET", nil, contract.ReasonUnauthenticated},
			"two tickets":                {"/v1/runs/run:watch?ticket=TICKET&ticket=TICKET", nil, contract.ReasonUnauthenticated},
			"a ticket and a token":       {"/v1/runs/run:watch?ticket=TICKET", []string{"Authorization", "Bearer " + made.Token}, contract.ReasonUnauthenticated},
			"a token as a ticket":        {"/v1/runs/run:watch?ticket=" + made.Token, nil, contract.ReasonUnauthenticated},
			"a ticket as a token":        {"/v1/runs/run:watch", []string{"Authorization", "Bearer TICKET"}, contract.ReasonUnauthenticated},
			"in a header, another call":  {"/v1/whoami", []string{"Authorization", auth.TicketScheme + " TICKET"}, contract.ReasonPermissionDenied},
			"for more tickets":           {"/v1/tokens", []string{"Authorization", auth.TicketScheme + " TICKET"}, contract.ReasonPermissionDenied},
			"a line break in the ticket": {"/v1/runs/run:watch?ticket=TICKET%0d%0a", nil, contract.ReasonUnauthenticated},
		} {
			fresh := ticket(made.Token)
			for i := range c.header {
				c.header[i] = strings.ReplaceAll(c.header[i], "TICKET", fresh)
			}
			got := n.HTTP("GET", strings.ReplaceAll(c.target, "TICKET", fresh), "", c.header...)
			if got.Code == http.StatusBadRequest {
				continue // The parameter is not known there.
			}
			if r := got.Refused(t, c.reason); strings.Contains(r.Message, fresh) {
				t.Errorf("%s: the answer has the ticket: %s", attack, got.Body)
			}
		}
		n.HTTP("GET", "/v1/runs/run:watch?mustExist=true&ticket="+ticket(stranger), "").Refused(t, contract.ReasonRunNotFound)

		if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: made.TokenId}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for lines.Scan() {
			if lines.Text() != "" {
				last = lines.Text()
			}
		}
		if !strings.Contains(last, string(contract.ReasonUnauthenticated)) {
			t.Errorf("the watch ends with %q", last)
		}
		run := rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)
		log, err := n.Events.ListEvents(n.Bearing(root), &runlogv1.ListEventsRequest{RunId: run})
		if err != nil || len(log.Events) == 0 || strings.Contains(log.String(), "rlw_") {
			t.Errorf("the access log has a ticket: %v, %v", log, err)
		}
		ctx := metadata.AppendToOutgoingContext(n.Context(), "authorization", auth.TicketScheme+" "+ticket(stranger))
		_, err = n.Runs.GetRun(ctx, &runlogv1.GetRunRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
	})
}
