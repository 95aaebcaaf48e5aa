package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// attack is something that a hostile client does. make may return before the context ends: what it
// has begun goes on until then.
type attack struct {
	name string
	make func(ctx context.Context, n *node, got *answers)
}

var attacks = []attack{
	{"60 x 15 MiB appends, HTTP", burstHTTP},
	{"60 x 15 MiB appends, gRPC", burstGRPC},
	{"100 stalled 15 MiB bodies, HTTP", stalledHTTP},
	{"100 stalled 15 MiB bodies, gRPC", stalledGRPC},
	{"400 unread 60 MB reads, HTTP", unreadHTTP},
	{"400 unread 60 MB reads, gRPC", unreadGRPC},
	{"1 TB Content-Length", hugeLength},
	{"gzip bombs, HTTP", bombsHTTP},
	{"gzip bombs, gRPC", bombsGRPC},
	{"1000 slow heads, HTTP", slowHeads},
	{"1000 slow bodies, HTTP", slowBodies},
	{"1000 slow readers, HTTP", slowReaders},
	{"20000 stuck watches, gRPC", stuckWatches},
	{"rapid reset", rapidReset},
	{"CONTINUATION flood", continuations},
	{"CONTINUATION flood, members", memberContinuations},
	{"bytes without sense, members", memberNoise},
}

// bodyBytes is about the largest request that a node accepts.
const bodyBytes = 15 << 20

// largeAppend is an append of about bodyBytes.
func largeAppend(run string) *runlogv1.AppendEventsRequest {
	r := &runlogv1.AppendEventsRequest{RunId: run}
	for k := range bodyBytes / (63 << 10) {
		r.Events = append(r.Events, event(fmt.Sprint("s", k), large(k)))
	}
	return r
}

// largeBody is an append of about bodyBytes as JSON.
func largeBody() []byte {
	var b bytes.Buffer
	b.WriteString(`{"events":[`)
	for k := range bodyBytes / (63 << 10) {
		if k > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"eventType":"Noted","stepId":"s%d","tenantId":"t","projectId":"p","environmentId":"e","planId":"plan","planVersion":"1",`+
			`"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z","payload":%s}`, k, large(k))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// burstHTTP sends large appends at once, and again once all are answered.
func burstHTTP(ctx context.Context, n *node, got *answers) {
	body := largeBody()
	for round := 0; ctx.Err() == nil; round++ {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				post(ctx, n, fmt.Sprintf("/v1/runs/h%d-%d/events:append", round, i), bytes.NewReader(body), "", got)
			})
		}
		all.Wait()
	}
}

func post(ctx context.Context, n *node, path string, body io.Reader, encoding string, got *answers) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addresses.HTTP+path, body)
	if err != nil {
		got.told(err.Error())
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		got.told("broken")
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	got.told(fmt.Sprint(res.StatusCode))
}

func burstGRPC(ctx context.Context, n *node, got *answers) {
	events := largeAppend("").Events
	for round := 0; ctx.Err() == nil; round++ {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				c, err := dial(n.addresses.GRPC)
				if err != nil {
					got.add(err)
					return
				}
				defer func() { _ = c.Close() }()
				_, err = runlogv1.NewEventServiceClient(c).AppendEvents(ctx,
					&runlogv1.AppendEventsRequest{RunId: fmt.Sprintf("g%d-%d", round, i), Events: events})
				got.add(err)
			})
		}
		all.Wait()
	}
}

// connect opens connections, and opens each again when the node closes it. use writes to a
// connection; what the node answers after that is not read.
func connect(ctx context.Context, address string, count int, got *answers, use func(net.Conn)) {
	for range count {
		go func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					got.told("no connection")
					return
				}
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				use(conn)
				stop()
				_ = conn.Close()
				got.told("connections")
				again(ctx)
			}
		}()
	}
}

// again is the time after which an attacker that was refused comes back.
func again(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// head writes the head of a request over HTTP.
func head(conn net.Conn, first string, headers ...string) {
	_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", first, strings.Join(append(headers, ""), "\r\n"))
}

// linger waits until the node closes the connection, without reading more than a byte at a time.
func linger(ctx context.Context, conn net.Conn) {
	<-ctx.Done()
	_ = conn.Close()
}

func stalledHTTP(ctx context.Context, n *node, got *answers) {
	part := bytes.Repeat([]byte(" "), bodyBytes-1000)
	connect(ctx, n.addresses.HTTP, 100, got, func(conn net.Conn) {
		head(conn, "POST /v1/runs/stall/events:append", "Content-Type: application/json", fmt.Sprint("Content-Length: ", bodyBytes))
		_, _ = conn.Write(part)
		_, _ = io.Copy(io.Discard, conn)
	})
}

func hugeLength(ctx context.Context, n *node, got *answers) {
	part := bytes.Repeat([]byte(" "), 1<<20)
	connect(ctx, n.addresses.HTTP, 50, got, func(conn net.Conn) {
		head(conn, "POST /v1/runs/huge/events:append", "Content-Type: application/json", "Content-Length: 1099511627776")
		for range 100 {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
	})
}

func unreadHTTP(ctx context.Context, n *node, got *answers) {
	connect(ctx, n.addresses.HTTP, 400, got, func(conn net.Conn) {
		head(conn, "GET /v1/runs/read/events:read")
		linger(ctx, conn)
	})
}

func unreadGRPC(ctx context.Context, n *node, got *answers) {
	for range 400 {
		go func() {
			c, err := dial(n.addresses.GRPC)
			if err != nil {
				got.add(err)
				return
			}
			defer func() { _ = c.Close() }()
			s, err := runlogv1.NewEventServiceClient(c).ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "read"})
			if err == nil {
				_, err = s.Header()
			}
			got.add(err)
			<-ctx.Done()
		}()
	}
}

// bomb is 1 GiB of blanks as gzip. It is made once: that takes the time of a processor.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	blanks := bytes.Repeat([]byte(" "), 1<<20)
	for range 1 << 10 {
		_, _ = z.Write(blanks) // A bytes.Buffer takes all.
	}
	_ = z.Close()
	return b.Bytes()
})

func bombsHTTP(ctx context.Context, n *node, got *answers) {
	body := bomb()
	for range 50 {
		go func() {
			for ctx.Err() == nil {
				post(ctx, n, "/v1/runs/bomb/events:append", bytes.NewReader(body), "gzip", got)
			}
		}()
	}
}

func bombsGRPC(ctx context.Context, n *node, got *answers) {
	body := bomb()
	framed := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body))), body...)
	for range 50 {
		go func() {
			for ctx.Err() == nil {
				rawCall(ctx, n, bytes.NewReader(framed), "gzip", got)
			}
		}()
	}
}

func stalledGRPC(ctx context.Context, n *node, got *answers) {
	wire, err := proto.Marshal(largeAppend("stall"))
	if err != nil {
		got.told(err.Error())
		return
	}
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(wire))), wire[:len(wire)-1000]...)
	for range 100 {
		go func() {
			for ctx.Err() == nil {
				reader, writer := io.Pipe()
				go func() { _, _ = writer.Write(framed) }()
				rawCall(ctx, n, reader, "", got)
				_ = reader.Close()
				again(ctx)
			}
		}()
	}
}
