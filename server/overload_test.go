package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/budget"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestStalledBodiesSEC6: bodies that stall take a bounded part of the memory. Further ones are
// refused as OVERLOADED, and small appends pass. Once the clients are gone, nothing is in use.
func TestStalledBodiesSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		memory := n.Server.Internals().Memory
		n.Append("run", servertest.NewEvent("RunStarted"))
		post := func(length string) net.Conn {
			conn, err := n.DialTo(n.Context(), n.Server.Addresses().HTTP)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /v1/runs/run/events:append HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n", length)
			return conn
		}
		refusedAs := func(conn net.Conn, want contract.Reason) {
			t.Helper()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != want.Info().HTTP {
				t.Errorf("%v, error %v", resp, err)
			}
		}
		huge := post(fmt.Sprint(int64(1) << 40))
		refusedAs(huge, contract.ReasonPayloadTooLarge)
		_ = huge.Close()

		part := []byte(strings.Repeat(" ", 6<<20))
		var stalled []net.Conn
		for range 2 {
			conn := post("8000000")
			stalled = append(stalled, conn)
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		bubble.Until(t, "the bodies count as they grow", func() bool { return memory.Used() > 4*6<<20 })
		over := post("12000000")
		go func() { _, _ = over.Write(part); _, _ = over.Write(part) }()
		refusedAs(over, contract.ReasonOverloaded)
		_ = over.Close()
		if used := memory.Used(); used > n.Opts.MemoryBytes/server.MemoryShare/2+1<<20 {
			t.Errorf("%d bytes are in use", used)
		}
		for i := range 10 {
			n.Append("run", servertest.Steps(fmt.Sprint("small", i), 3)...)
		}
		for _, conn := range stalled {
			_ = conn.Close()
		}
		bubble.Until(t, "the bodies are let go of", func() bool { return memory.Used() == 0 })
	})
}

// TestUnreadReadsSEC6: answers that wait for their reader are bounded over gRPC, further reads are
// refused as OVERLOADED, small appends pass, and cancelled reads leave nothing in use.
func TestUnreadReadsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		memory := n.Server.Internals().Memory
		pad := servertest.Payload(`{"a":"` + strings.Repeat("a", 60_000) + `"}`)
		for i := range 3 {
			events := servertest.Steps(fmt.Sprint("s", i), 100)
			for _, e := range events {
				pad(e)
			}
			n.Append("run", events...)
		}
		bubble.Until(t, "the appends are let go of", func() bool { return memory.Used() == 0 })
		ctx, cancel := context.WithCancel(n.Context())
		defer cancel()
		refusal := make(chan error, 100)
		for range 40 {
			stream, err := n.Events.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "run"})
			if err != nil {
				t.Fatal(err)
			}
			go func() { // The header comes with the first message, or the refusal without one.
				if md, err := stream.Header(); err != nil || md == nil {
					_, err := stream.Recv()
					refusal <- err
				}
			}()
		}
		if err := <-refusal; status.Code(err) != contract.ReasonOverloaded.Info().Code {
			t.Errorf("a read too many: %v", err)
		}
		if used := memory.Used(); used > n.Opts.MemoryBytes/server.MemoryShare/2+40*budget.OpenCall {
			t.Errorf("%d bytes are in use", used)
		}
		for i := range 10 {
			n.Append("other", servertest.Steps(fmt.Sprint("small", i), 3)...)
		}
		cancel()
		bubble.Until(t, "the reads are let go of", func() bool { return memory.Used() == 0 })
	})
}

// TestImportBodiesSEC6: the body of an import counts as it grows, and is refused as OVERLOADED when
// there is no room. A length above the limit is refused at once.
func TestImportBodiesSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		memory := n.Server.Internals().Memory
		post := func(length int64, part int) (net.Conn, *bufio.Reader) {
			conn, err := n.DialTo(n.Context(), n.Server.Addresses().Admin)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n", length)
			go func() { _, _ = conn.Write([]byte(strings.Repeat("\n", part))) }()
			return conn, bufio.NewReader(conn)
		}
		refusedAs := func(in *bufio.Reader, want contract.Reason) {
			t.Helper()
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != want.Info().HTTP {
				t.Errorf("%v, error %v", resp, err)
			}
		}
		huge, in := post(1<<40, 0)
		refusedAs(in, contract.ReasonPayloadTooLarge)
		_ = huge.Close()
		stalled, _ := post(10<<20, 6<<20)
		bubble.Until(t, "the body counts as it grows", func() bool { return memory.Used() > 2*6<<20 })
		rest, err := memory.Acquire(budget.Shared, memory.Free(budget.Shared))
		if err != nil {
			t.Fatal(err)
		}
		over, in := post(1<<20, 1<<20)
		refusedAs(in, contract.ReasonOverloaded)
		_ = over.Close()
		_ = stalled.Close()
		rest.Release()
		bubble.Until(t, "the bodies are let go of", func() bool { return memory.Used() == 0 })
		n.Imports(servertest.WithGaps("after")...).OK(t)
	})
}

// TestUnreadExportSEC6: the messages of an export count while its client takes none, and let go
// when the client is gone.
func TestUnreadExportSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		memory := n.Server.Internals().Memory
		pad := servertest.Payload(`{"a":"` + strings.Repeat("a", 60_000) + `"}`)
		for i := range 3 {
			events := servertest.Steps(fmt.Sprint("s", i), 100)
			for _, e := range events {
				pad(e)
			}
			n.Append("run", events...)
		}
		bubble.Until(t, "the appends are let go of", func() bool { return memory.Used() == 0 })
		ctx, cancel := context.WithCancel(n.Context())
		defer cancel()
		if _, err := n.Audit.ExportEvents(ctx, &runlogv1.ExportEventsRequest{}); err != nil {
			t.Fatal(err)
		}
		// exportAhead messages of 256 KiB or more wait, and one is in gRPC.
		bubble.Until(t, "messages count", func() bool { return memory.Used() > 1<<20 })
		cancel()
		bubble.Until(t, "the export is let go of", func() bool { return memory.Used() == 0 })
	})
}

// TestLongHeadsSEC6: headers without an end are refused, over gRPC as over HTTP, before they take
// memory.
func TestLongHeadsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		md := metadata.AppendToOutgoingContext(n.Context(), "x-long", strings.Repeat("a", 2*server.MaxHeaderBytes))
		if _, err := runlogv1.NewEventServiceClient(plainConn(t, n)).ListEvents(md, &runlogv1.ListEventsRequest{RunId: "run"}); err == nil ||
			status.Code(err) == contract.ReasonRunNotFound.Info().Code {
			t.Errorf("a call with %d bytes of headers: %v", 2*server.MaxHeaderBytes, err)
		}
		answer := n.HTTP("GET", "/v1/runs/run/events", "", "X-Long", strings.Repeat("a", 2*server.MaxHeaderBytes))
		if answer.Code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("HTTP: %d", answer.Code)
		}
	})
}

// TestPagesCountAsTheyGrowSEC6: a page counts while it is read. Without room it is refused as
// OVERLOADED, and a short one is still read. Nothing stays in use.
func TestPagesCountAsTheyGrowSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MemoryBytes = server.MinMemoryBytes })
		memory := n.Server.Internals().Memory
		events := servertest.Steps("s", 100)
		for _, e := range events {
			servertest.Payload(`{"a":"` + strings.Repeat("a", 60_000) + `"}`)(e)
		}
		n.Append("large", events...)
		n.Append("small", servertest.Steps("s", 3)...)
		bubble.Until(t, "the appends are let go of", func() bool { return memory.Used() == 0 })
		rest, err := memory.Acquire(budget.Shared, memory.Free(budget.Shared)-1<<20)
		if err != nil {
			t.Fatal(err)
		}
		used := memory.Used()
		from, until := time.Now().Add(-time.Hour), time.Now()
		for name, read := range map[string]func(run string) error{
			"ListEvents": func(run string) error {
				_, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: run})
				return err
			},
			"ReadEvents": func(run string) error {
				s, err := n.Events.ReadEvents(n.Context(), &runlogv1.ReadEventsRequest{RunId: run})
				for err == nil {
					_, err = s.Recv()
				}
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			},
			"QueryEvents": func(run string) error {
				_, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{RunId: run, From: timestamppb.New(from), To: timestamppb.New(until)})
				return err
			},
		} {
			if err := read("large"); status.Code(err) != contract.ReasonOverloaded.Info().Code {
				t.Errorf("%s of a large page without room: %v", name, err)
			}
			if err := read("small"); err != nil {
				t.Errorf("%s of a small page: %v", name, err)
			}
		}
		answer := n.HTTP("GET", "/v1/runs/large/events", "")
		if answer.Code != contract.ReasonOverloaded.Info().HTTP {
			t.Errorf("HTTP: %d", answer.Code)
		}
		bubble.Until(t, "the pages are let go of", func() bool { return memory.Used() == used })
		rest.Release()
	})
}

// TestCompressedBodiesSEC6: a compressed request is refused before it is read, so that no gzip bomb
// is decompressed.
func TestCompressedBodiesSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		answer := n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+servertest.HTTPEvent("a")+`]}`, "Content-Encoding", "gzip")
		if answer.Code != http.StatusBadRequest || !strings.Contains(string(answer.Body), "Content-Encoding") {
			t.Errorf("a compressed body: %d %s", answer.Code, answer.Body)
		}
		for _, name := range []string{"gzip", "deflate", "snappy", "zstd"} {
			if encoding.GetCompressor(name) != nil {
				t.Errorf("gRPC decompresses %s before the guard sees a message", name)
			}
		}
	})
}
