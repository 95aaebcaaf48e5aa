package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// queuesOf answers requests for queues with one page after the other, and notes the tokens of the
// requests. A page is the names of its queues; failure is the answer behind the last page, if any.
func queuesOf(asked *[]string, pages []string, failure error) func(context.Context, *runlogv1.ListQueuesRequest) (*runlogv1.ListQueuesResponse, error) {
	return func(_ context.Context, req *runlogv1.ListQueuesRequest) (*runlogv1.ListQueuesResponse, error) {
		*asked = append(*asked, req.GetTenantId()+" "+req.GetPageToken())
		at := 0
		_, _ = fmt.Sscan(req.GetPageToken(), &at) // The first page has no token.
		if at == len(pages) {
			return nil, failure
		}
		res := &runlogv1.ListQueuesResponse{}
		for _, name := range strings.Fields(pages[at]) {
			res.Queues = append(res.Queues, &runlogv1.Queue{Queue: name})
		}
		if at+1 < len(pages) || failure != nil {
			res.NextPageToken = fmt.Sprint(at + 1)
		}
		return res, nil
	}
}

// TestPages: each page is asked for with the token of the one before, an empty one too. Items come
// before the error behind them. A reader that stops asks for no further page. The request stays as
// it is, so that a second reading begins where the first began.
func TestPages(t *testing.T) {
	lost := errors.New("lost")
	for name, tt := range map[string]struct {
		pages   []string
		failure error
		token   string
		stop    string // the item at which the reader stops
		want    string
		asked   []string
	}{
		"one page":        {pages: []string{"a b"}, want: "a b", asked: []string{"acme "}},
		"three pages":     {pages: []string{"a b", "", "c"}, want: "a b c", asked: []string{"acme ", "acme 1", "acme 2"}},
		"none":            {pages: []string{""}, asked: []string{"acme "}},
		"from a token on": {pages: []string{"a", "b", "c"}, token: "1", want: "b c", asked: []string{"acme 1", "acme 2"}},
		"stopped":         {pages: []string{"a b", "c"}, stop: "b", want: "a b", asked: []string{"acme "}},
		"failed":          {pages: []string{"a"}, failure: lost, want: "a lost", asked: []string{"acme ", "acme 1"}},
		"failed at once":  {failure: lost, want: "lost", asked: []string{"acme "}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			req := &runlogv1.ListQueuesRequest{TenantId: "acme", PageToken: tt.token}
			queues := Pages(t.Context(), req, queuesOf(&asked, tt.pages, tt.failure), (*runlogv1.ListQueuesResponse).GetQueues)
			for range 2 {
				asked = nil
				if got := read(queues, tt.stop); got != tt.want || !slices.Equal(asked, tt.asked) {
					t.Errorf("read %q with the requests %q, want %q and %q", got, asked, tt.want, tt.asked)
				}
			}
			if req.GetPageToken() != tt.token {
				t.Errorf("the request has the token %q", req.GetPageToken())
			}
		})
	}
}

// read returns the names of queues, up to that of stop, and the error.
func read(queues iter.Seq2[*runlogv1.Queue, error], stop string) string {
	var got []string
	for q, err := range queues {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		if got = append(got, q.GetQueue()); q.GetQueue() == stop {
			break
		}
	}
	return strings.Join(got, " ")
}
