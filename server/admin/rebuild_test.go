package admin_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"runlog/server/admin"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRebuildOverAdminPRJ13: the admin listener rebuilds the projection and reports progress, and
// every answer stays the same.
func TestRebuildOverAdminPRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for file := range servertest.ExpectedStories {
			n.AppendStory(servertest.ReadStory(t, file))
		}
		runID := servertest.ReadStory(t, "analytics-pipeline").RunID
		before := n.Snapshot(runID)
		req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.Server.Addresses().Admin+"/projection/rebuild", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := n.HTTPClient().Do(req)
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
		if resp.StatusCode != http.StatusOK || last.Phase != "done" || last.Compared != len(servertest.ExpectedStories) || last.Differing != 0 {
			t.Errorf("HTTP %d, ended with %+v", resp.StatusCode, last)
		}
		if after := n.Snapshot(runID); after.Digest != before.Digest {
			t.Errorf("digest %s, before %s", after.Digest, before.Digest)
		}
		n.Append("after", servertest.NewEvent("Noted", servertest.Step("a")))
		if got := n.Snapshot("after").LastEventSeq; got != 1 {
			t.Errorf("a new run is at %d", got)
		}
	})
}
