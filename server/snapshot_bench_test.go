package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
)

// echo answers every GetSnapshot with the same message, and does nothing else.
type echo struct {
	runlogv1.UnimplementedProjectionServiceServer
	answer *runlogv1.GetSnapshotResponse
}

func (e *echo) GetSnapshot(context.Context, *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	return e.answer, nil
}

// serveEcho starts a bare gRPC server with the options of a node's.
func serveEcho(b *testing.B, answer *runlogv1.GetSnapshotResponse) (address string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(grpc.NumStreamWorkers(server.StreamWorkers), grpc.InitialWindowSize(server.StreamWindow),
		grpc.InitialConnWindowSize(server.ConnWindow), grpc.ReadBufferSize(server.ConnBuffer), grpc.WriteBufferSize(server.ConnBuffer))
	runlogv1.RegisterProjectionServiceServer(s, &echo{answer: answer})
	go func() { _ = s.Serve(l) }()
	b.Cleanup(s.Stop)
	return l.Addr().String()
}

// BenchmarkGetSnapshot reads a run that is in memory, over gRPC on loopback, next to a server that
// answers with the same message at once: what the node takes longer is its own.
func BenchmarkGetSnapshot(b *testing.B) {
	n := servertest.Start(b)
	for _, steps := range []int{2, 50} {
		run := fmt.Sprint("run-", steps)
		n.Append(run, benchRun(steps)...)
		answer, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: run})
		if err != nil {
			b.Fatal(err)
		}
		for _, server := range []struct{ name, address string }{
			{"echo", serveEcho(b, answer)}, {"node", n.Server.Addresses().GRPC},
		} {
			conn, err := grpc.NewClient(server.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = conn.Close() })
			projection := runlogv1.NewProjectionServiceClient(conn)
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("steps=%d/callers=%d/%s", steps, callers, server.name), func(b *testing.B) {
					readSnapshots(b, projection, &runlogv1.GetSnapshotRequest{RunId: run}, callers)
					b.ReportMetric(float64(proto.Size(answer)), "answer-B")
				})
			}
		}
	}
}

// readSnapshots has so many callers ask one after the other.
func readSnapshots(b *testing.B, projection runlogv1.ProjectionServiceClient, req *runlogv1.GetSnapshotRequest, callers int) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, callers)
	b.ResetTimer()
	for range callers {
		go func() {
			for left.Add(-1) >= 0 {
				if _, err := projection.GetSnapshot(b.Context(), req); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// benchRun is a run of so many steps that all succeed with an artifact each.
func benchRun(steps int) []*runlogv1.EventWrite {
	events := []*runlogv1.EventWrite{servertest.NewEvent("RunQueued"), servertest.NewEvent("RunStarted")}
	for i := range steps {
		id := servertest.Step(fmt.Sprintf("model.marketing.step_%04d", i))
		events = append(events, servertest.NewEvent("StepStarted", id, servertest.Payload(`{"startedAt":"2026-02-11T10:30:01.250Z"}`)),
			servertest.NewEvent("StepCompleted", id, servertest.Payload(fmt.Sprintf(`{"artifactRefs":[{"uri":"s3://artifacts/prod/run_2026-02-11/%04d/manifest.json",
				"kind":"dbt-manifest","sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","sizeBytes":18234}],
				"completedAt":"2026-02-11T10:31:07.125Z"}`, i))))
	}
	return append(events, servertest.NewEvent("RunCompleted"))
}

// BenchmarkUnchangedSnapshot reads the snapshot of a run of 5,000 steps over HTTP, with the ETag of
// the answer before, which is answered with 304, and with another one.
func BenchmarkUnchangedSnapshot(b *testing.B) {
	n := servertest.Start(b)
	for events := range slices.Chunk(benchRun(5000), 500) {
		n.Append("large", events...)
	}
	n.Settle()
	client := &http.Client{Transport: &http.Transport{}}
	b.Cleanup(client.CloseIdleConnections)
	read := func(b *testing.B, tag string, want int) string {
		req, err := http.NewRequest(http.MethodGet, "http://"+n.Server.Addresses().HTTP+"/v1/runs/large/snapshot", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("If-None-Match", tag)
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
			b.Fatalf("HTTP %d, %v", resp.StatusCode, err)
		}
		return resp.Header.Get("ETag")
	}
	tag := read(b, `"other"`, http.StatusOK)
	for _, c := range []struct {
		name, tag string
		want      int
	}{{"304", tag, http.StatusNotModified}, {"200", `"other"`, http.StatusOK}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				read(b, c.tag, c.want)
			}
		})
	}
}
