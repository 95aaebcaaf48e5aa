package access_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestCredentialsBeforeBodySEC3: credentials are refused before the body of a request arrives. The
// access log has the call.
func TestCredentialsBeforeBodySEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { servertest.Secured(o) })
		for _, credentials := range []string{"", "Authorization: Bearer rlk_wrong\r\n", "Authorization: Basic eDp5\r\n"} {
			conn, err := n.DialTo(n.Context(), n.Server.Addresses().HTTP)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(servertest.Patience))
			_, err = fmt.Fprintf(conn, "POST /v1/runs/run/events:append HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: 1000\r\n\r\n{", credentials)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			servertest.HTTPAnswer{Code: resp.StatusCode, Header: resp.Header, Body: body}.Refused(t, contract.ReasonUnauthenticated)
		}
	})
}
