package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/checkpoint"
	"runlog/server/datadir"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/storage/machine/signing"
	"runlog/testbed/bubble"
)

// TestForgedTokensAreNotSignedREAD4: the cluster does not sign an export that continues a forged
// token, whose count and digest are made up. It signs exports that continue its own tokens.
func TestForgedTokensAreNotSignedREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		auditLoad(n, 0)
		n.HaveKey()
		keys, err := signing.Keys(n.Server.Internals().Replica.Store())
		if err != nil {
			t.Fatal(err)
		}
		key := keys[len(keys)-1].PublicKey
		x := n.Export(&runlogv1.ExportEventsRequest{})
		req := &runlogv1.ExportEventsRequest{To: x.Summary.To, PageToken: ""}
		page, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{To: x.Summary.To, PageSize: 7})
		if err != nil {
			t.Fatal(err)
		}
		req.PageToken = page.NextPageToken
		honest := n.Export(req)
		if _, _, err := proof.Open(honest.Summary.Statement, key); err != nil || honest.Summary.Digest != x.Summary.Digest {
			t.Errorf("what goes on from the cluster's own token: %v, digest %s, want %s", err, honest.Summary.Digest, x.Summary.Digest)
		}

		// The forged token skips all events and claims one that never existed. All of it is public,
		// except the signature.
		domain := rpc.NewTokenDomain("audit window", n.Incarnation())
		_, body, _ := domain.Open(page.NextPageToken)
		body = body[:16:16] // The question and the end of the window.
		for _, number := range []uint64{1 << 40, 0, 0, 0, 1} {
			body = binary.AppendUvarint(body, number)
		}
		digest := contract.Digest{0xbe, 0xef}
		req.PageToken = domain.Seal(rpc.TokenWindow, append(body, digest[:]...))
		forged := n.Export(req)
		if st, _, err := proof.Open(forged.Summary.Statement, key); err == nil {
			t.Errorf("the cluster has signed\n%s", st)
		}
		incarnation, text, _ := strings.Cut(page.NextPageToken, "-")
		b, _ := base64.RawURLEncoding.DecodeString(text)
		for i := range b {
			changed := append([]byte(nil), b...)
			changed[i] ^= 1
			req.PageToken = incarnation + "-" + base64.RawURLEncoding.EncodeToString(changed)
			if got, err := n.TryExport(req); err == nil {
				t.Fatalf("byte %d of a token changed: taken, %v", i, got.Summary)
			}
		}
	})
}

// TestTokensOfEarlierKeysREAD4: a holder of a key that was replaced cannot make the cluster sign,
// with the new key, an export that continues a forged token. A token of before continues, unsigned.
func TestTokensOfEarlierKeysREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		auditLoad(n, 0)
		n.HaveKey()
		kept, err := checkpoint.HeldSigner(vfs.Default, filepath.Join(n.Opts.DataDir, datadir.KeyFile),
			n.Server.Internals().Replica.ClusterID(), n.Server.Internals().Replica.Store())
		if err != nil {
			t.Fatal(err)
		}
		x := n.Export(&runlogv1.ExportEventsRequest{})
		page, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{To: x.Summary.To, PageSize: 7})
		if err != nil {
			t.Fatal(err)
		}
		rotated, err := n.Audits().RotateSigningKey(n.Context(), &runlogv1.RotateSigningKeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		before := n.Export(&runlogv1.ExportEventsRequest{To: x.Summary.To, PageToken: page.NextPageToken})
		if before.Summary.Digest != x.Summary.Digest {
			t.Errorf("what goes on from a token of before: digest %s, want %s", before.Summary.Digest, x.Summary.Digest)
		}
		if _, _, err := proof.Open(before.Summary.Statement, rotated.Key.PublicKey); err == nil {
			t.Error("what goes on from a token of before is signed")
		}

		in := n.Incarnation()
		domain := rpc.NewTokenDomain("audit window", in)
		_, body, _ := domain.Open(page.NextPageToken)
		body = body[:16:16] // The question and the end of the window.
		for _, number := range []uint64{1 << 40, 0, 0, 0, 1} {
			body = binary.AppendUvarint(body, number)
		}
		digest := contract.Digest{0xbe, 0xef}
		body = append(body, digest[:]...)
		asked := sha256.Sum256(slices.Concat([]byte("runlog/window question/1\x00"), make([]byte, 8),
			binary.BigEndian.AppendUint64(nil, uint64(x.Summary.To.AsTime().UnixNano())), make([]byte, 6)))
		if !bytes.Equal(asked[:8], body[:8]) {
			t.Fatal("the test knows another hash of the request")
		}
		signature, err := kept.SignBytes("runlog window token 3", slices.Concat(in[:], body, asked[:]))
		if err != nil {
			t.Fatal(err)
		}
		forged := n.Export(&runlogv1.ExportEventsRequest{To: x.Summary.To, PageToken: domain.Seal(rpc.TokenSignedWindow, append(body, signature...))})
		if st, _, err := proof.Open(forged.Summary.Statement, rotated.Key.PublicKey); err == nil {
			t.Errorf("the cluster has signed with its new key\n%s", st)
		}
	})
}

// TestTokensStayInTheirWindow: a token cannot move the end of a window beyond that of the request.
func TestTokensStayInTheirWindow(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		auditLoad(n, 0)
		page, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PageSize: 7})
		if err != nil {
			t.Fatal(err)
		}
		domain := rpc.NewTokenDomain("audit window", n.Incarnation())
		kind, body, _ := domain.Open(page.NextPageToken)
		if kind == rpc.TokenSignedWindow {
			body = body[:len(body)-64] // Without the signature.
		}
		for _, to := range []int64{-5, 0} {
			binary.BigEndian.PutUint64(body[8:], uint64(to))
			_, err := n.TryExport(&runlogv1.ExportEventsRequest{PageToken: domain.Seal(rpc.TokenWindow, body)})
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		}
	})
}

// TestStalledExports: exports whose readers take nothing hold no view of the store, and end after
// SlowConsumer.
func TestStalledExports(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.SlowConsumer = 2 * time.Second })
		payload := make([]byte, 0, 8<<10)
		payload = append(payload, `{"x":"`...)
		for len(payload) < 8000 {
			payload = append(payload, 'x')
		}
		payload = append(payload, `"}`...)
		for i := range 60 {
			events := make([]*runlogv1.EventWrite, 40)
			for j := range events {
				events[j] = servertest.NewEvent("SignalAccepted", func(e *runlogv1.EventWrite) {
					e.LogicalAttemptId = uint32(i*40 + j + 1)
					e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
				})
			}
			n.MustAppend("run", events...)
		}
		for range 8 {
			stream, err := n.Audit.ExportEvents(t.Context(), &runlogv1.ExportEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		// Eight exports at once are the limit.
		if _, err := n.TryExport(&runlogv1.ExportEventsRequest{RunId: "other"}); err == nil {
			t.Error("a ninth export is taken")
		}
		bubble.Until(t, "the places of stalled exports are free again", func() bool {
			_, err := n.TryExport(&runlogv1.ExportEventsRequest{RunId: "other"})
			return err == nil
		})
	})
}

// TestSignedFromTheBeginning: a new cluster signs its first exports, also at a node that does not
// have the key yet.
func TestSignedFromTheBeginning(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, n := range servertest.StartNodes(t, 3, servertest.Seldom) {
			n.HaveKey()
		}
	})
}
