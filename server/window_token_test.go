package server

import (
	"encoding/base64"
	"testing"
	"time"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// TestForgedTokensAreNotSignedREAD4: whoever makes up a token makes up count and digest, which the
// cluster must not sign. What comes of its own tokens it does sign.
func TestForgedTokensAreNotSignedREAD4(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	auditLoad(n, 0)
	n.haveKey()
	keys, err := signing.Keys(n.server.store)
	if err != nil {
		t.Fatal(err)
	}
	key := keys[len(keys)-1].PublicKey
	x := n.export(&runlogv1.ExportEventsRequest{})
	req := &runlogv1.ExportEventsRequest{To: x.summary.To, PageToken: ""}
	page, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{To: x.summary.To, PageSize: 7})
	if err != nil {
		t.Fatal(err)
	}
	req.PageToken = page.NextPageToken
	honest := n.export(req)
	if _, _, err := proof.Open(honest.summary.Statement, key); err != nil || honest.summary.Digest != x.summary.Digest {
		t.Errorf("what goes on from the cluster's own token: %v, digest %s, want %s", err, honest.summary.Digest, x.summary.Digest)
	}

	// The forger: all events are skipped, one is claimed that never was. All of it is public, but
	// the signature.
	w, err := n.server.parseWindow(t.Context(), &runlogv1.ExportEventsRequest{To: x.summary.To})
	if err != nil {
		t.Fatal(err)
	}
	w.at = windowPlace{cursor: storage.WindowCursor{Position: 1 << 40}, count: 1, digest: contract.Digest{0xbe, 0xef}}
	w.vouched = false
	req.PageToken = n.server.windowToken(w)
	forged := n.export(req)
	if st, _, err := proof.Open(forged.summary.Statement, key); err == nil {
		t.Errorf("the cluster has signed\n%s", st)
	}
	b, _ := base64.RawURLEncoding.DecodeString(page.NextPageToken)
	for i := range b {
		changed := append([]byte(nil), b...)
		changed[i] ^= 1
		req.PageToken = base64.RawURLEncoding.EncodeToString(changed)
		if got, err := n.tryExport(req); err == nil {
			t.Fatalf("byte %d of a token changed: taken, %v", i, got.summary)
		}
	}
}

// TestTokensStayInTheirWindow: a token does not move the end of a window to where no question can
// have it.
func TestTokensStayInTheirWindow(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	auditLoad(n, 0)
	w, err := n.server.parseWindow(t.Context(), &runlogv1.ExportEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w.vouched = false
	for _, to := range []int64{-5, 0} {
		w.to = to
		_, err := n.tryExport(&runlogv1.ExportEventsRequest{PageToken: n.server.windowToken(w)})
		refused(t, err, contract.ReasonInvalidArgumentField)
	}
}

// TestStalledExports: readers that take nothing hold no state of the database, and are given up
// after SlowConsumer.
func TestStalledExports(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(o *Options) { o.SlowConsumer = 2 * time.Second })
	payload := make([]byte, 0, 8<<10)
	payload = append(payload, `{"x":"`...)
	for len(payload) < 8000 {
		payload = append(payload, 'x')
	}
	payload = append(payload, `"}`...)
	for i := range 60 {
		events := make([]*runlogv1.EventWrite, 40)
		for j := range events {
			events[j] = newEvent("SignalAccepted", func(e *runlogv1.EventWrite) {
				e.LogicalAttemptId = uint32(i*40 + j + 1)
				e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
			})
		}
		n.mustAppend("run", events...)
	}
	for range maxExports {
		stream, err := n.audit.ExportEvents(t.Context(), &runlogv1.ExportEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the places of stalled exports are free again", func() bool { return n.server.exports.Load() == 0 })
	n.export(&runlogv1.ExportEventsRequest{RunId: "other"})
}

// TestSignedFromTheBeginning: what a cluster says in its first moments is signed, also by a node
// that is not given the key yet.
func TestSignedFromTheBeginning(t *testing.T) {
	for _, n := range startNodes(t, 3, seldom) {
		n.haveKey()
	}
}
