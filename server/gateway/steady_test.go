package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestUnreadAnswerSEC6: an answer whose reader takes nothing ends at the deadline of its next
// piece.
func TestUnreadAnswerSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		net := network.New(1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		answer := func(w http.ResponseWriter, _ *http.Request) {
			_, err := newSteady(w, 100*time.Millisecond).Write(make([]byte, 64<<20))
			failed <- err
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(answer)}}
		s.Start()
		defer s.Close()
		conn, err := net.Dial(t.Context(), "127.0.0.1", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the answer ends with %v", err)
		}
	})
}
