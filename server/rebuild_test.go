package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"runlog/server/admin"
	"runlog/testbed/bubble"
)

// TestRebuildOverAdminPRJ13: the admin listener rebuilds the projection and reports progress, and
// every answer stays the same.
func TestRebuildOverAdminPRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		for file := range expectedStories {
			n.appendStory(readStory(t, file))
		}
		runID := readStory(t, "analytics-pipeline").runID
		before := n.snapshot(runID)
		req, err := http.NewRequestWithContext(n.context(), http.MethodPost, "http://"+n.server.Addresses().Admin+"/projection/rebuild", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := n.httpClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var last admin.RebuildLine
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			d.DisallowUnknownFields()
			last = admin.RebuildLine{}
			if err := d.Decode(&last); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
		}
		if resp.StatusCode != http.StatusOK || last.Phase != "done" || last.Compared != len(expectedStories) || last.Differing != 0 {
			t.Errorf("HTTP %d, ended with %+v", resp.StatusCode, last)
		}
		if after := n.snapshot(runID); after.Digest != before.Digest {
			t.Errorf("digest %s, before %s", after.Digest, before.Digest)
		}
		n.append("after", newEvent("Noted", step("a")))
		if got := n.snapshot("after").LastEventSeq; got != 1 {
			t.Errorf("a new run is at %d", got)
		}
	})
}
