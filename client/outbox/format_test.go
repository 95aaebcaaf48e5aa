package outbox

import (
	"encoding/hex"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestGoldenFormat fixes the format: an outbox with two records, of which one is rejected and one
// removed, has these bytes. docs/formats.md shows them too. A file of an earlier version of this
// module can always be read.
func TestGoldenFormat(t *testing.T) {
	disk := newCrashFS()
	o := openOn(t, disk)
	reqs := []*runlogv1.AppendEventsRequest{
		{RunId: "r", Events: []*runlogv1.EventWrite{{EventType: "StepStarted", StepId: "s"}}},
		{RunId: "r", Fence: proto.Uint64(0)},
	}
	for _, req := range reqs {
		if _, err := o.Put(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		idle(o)
	}
	o.Done(2)
	idle(o)
	o.Reject(1, "no")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	file := disk.content(modelPath)
	text := hex.EncodeToString(file[:headerBytes]) + "\n"
	frames := regions(t, file)
	var ranges []Range
	for r := range frames {
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, func(a, b Range) int { return int(a.From - b.From) })
	for _, r := range ranges {
		text += hex.EncodeToString(file[r.From:r.To]) + "\n"
	}
	if *update {
		if err := os.WriteFile("testdata/format.golden", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/format.golden")
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the format has changed:\n%swant:\n%s", text, want)
	}
	page, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+string(want)+"```\n") {
		t.Error("docs/formats.md shows other bytes")
	}
	stored, err := hex.DecodeString(strings.ReplaceAll(string(want), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	disk.put(modelPath, stored)
	again := openOn(t, disk)
	defer again.Close()
	got, reasons := contents(t, again)
	if len(got) != 1 || !proto.Equal(got[1], reqs[0]) || reasons[1] != "no" || again.Recovery().String() != "" {
		t.Errorf("read as %v, %v; %s", got, reasons, again.Recovery())
	}
}
