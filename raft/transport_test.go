package raft

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
)

// TestClosedStreams: a transport that is closed ends every connection, also under who waits for a node that takes
// nothing, and makes no further one; what was closed before is forgotten.
func TestClosedStreams(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var far []net.Conn
	s := newStreams(&Options{Listener: l, Advertise: "elsewhere:1", Dial: func(string, time.Duration) (net.Conn, error) {
		near, other := net.Pipe() // nobody reads
		far = append(far, other)
		return near, nil
	}})
	if got := s.Addr().String(); got != "elsewhere:1" {
		t.Errorf("others are told %s", got)
	}
	done, err := s.Dial("x", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	stalled, err := s.Dial("x", time.Second)
	if err := errors.Join(err, done.Close()); err != nil {
		t.Fatal(err)
	}
	if len(s.open) != 1 {
		t.Errorf("%d connections are open, want 1", len(s.open))
	}
	failed := make(chan error)
	go func() {
		_, err := stalled.Write(make([]byte, 1<<20))
		failed <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-failed:
		if err == nil {
			t.Error("a write to a node that takes nothing succeeded")
		}
	case <-time.After(patience):
		t.Error("the stalled write goes on")
	}
	if _, err := s.Dial("x", time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed transport connects: %v", err)
	}
	for _, c := range far {
		_ = c.Close()
	}
}

// TestNothingOfALaterTermIsSentD3: what a member appended under a later leader does not go out in the name of the term in which it led
// itself; what is of its own term or an earlier one does.
func TestNothingOfALaterTermIsSentD3(t *testing.T) {
	dialled := errors.New("dialled")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	trans := newTransport(newStreams(&Options{Listener: l, Advertise: "here:1", Dial: func(string, time.Duration) (net.Conn, error) {
		return nil, dialled
	}}), hclog.NewNullLogger())
	t.Cleanup(func() { _ = trans.Close() })
	entries := func(terms ...uint64) (all []*hraft.Log) {
		for i, term := range terms {
			all = append(all, &hraft.Log{Index: uint64(i + 2), Term: term})
		}
		return all
	}
	for _, c := range []struct {
		name string
		req  hraft.AppendEntriesRequest
		want error
	}{
		{"of its term", hraft.AppendEntriesRequest{Term: 7, PrevLogTerm: 6, Entries: entries(6, 7)}, dialled},
		{"none", hraft.AppendEntriesRequest{Term: 7, PrevLogTerm: 7}, dialled},
		{"the last of a later term", hraft.AppendEntriesRequest{Term: 7, PrevLogTerm: 6, Entries: entries(6, 8)}, errNotLeading},
		{"the one before of a later term", hraft.AppendEntriesRequest{Term: 7, PrevLogTerm: 8}, errNotLeading},
	} {
		if err := trans.AppendEntries("x", "x:1", &c.req, &hraft.AppendEntriesResponse{}); !errors.Is(err, c.want) {
			t.Errorf("entries, %s: %v, want %v", c.name, err, c.want)
		}
	}
	for term, want := range map[uint64]error{6: dialled, 7: dialled, 8: errNotLeading} {
		req := &hraft.InstallSnapshotRequest{Term: 7, LastLogTerm: term}
		if err := trans.InstallSnapshot("x", "x:1", req, &hraft.InstallSnapshotResponse{}, strings.NewReader("")); !errors.Is(err, want) {
			t.Errorf("a snapshot of term %d: %v, want %v", term, err, want)
		}
	}
}
