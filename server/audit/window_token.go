package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"runlog/audit/proof"
	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// The token of a window is valid as long as the incarnation of the cluster, at every node, because
// positions do not change. Its body is
//
//	question:8 to:8 position chunk block event count digest:32 [signature:64]
//
// The numbers in the middle are uvarints. Question is the prefix of a hash over the request; it
// detects tokens of other requests. The signature is by the cluster's key, over the incarnation,
// the body before it and the complete hash of the request. With it, the cluster can sign at the end
// what other nodes than the answering one have counted. A token without a signature comes from a
// node that lacked the key, or continues such a token. One that an earlier key has signed counts as
// one without: a holder of that key could make the cluster sign anything with its new key.
const (
	questionBytes    = 8
	windowTokenTitle = "runlog window token 3"
	signatureBytes   = 64
)

func windowTokens(in storage.Incarnation) rpc.TokenDomain {
	return rpc.NewTokenDomain("audit window", in)
}

// hash identifies a request. The size of pages and the form of payloads are not part of it.
func (w *window) hash() [sha256.Size]byte {
	f := &w.filter
	b := binary.BigEndian.AppendUint64([]byte("runlog/window question/1\x00"), uint64(w.from))
	b = binary.BigEndian.AppendUint64(b, uint64(w.to))
	for _, text := range append([]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID, f.RunID, f.StepID}, f.Types...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return sha256.Sum256(b)
}

// windowToken returns the token from which the answer continues.
func (s *Service) windowToken(w *window) string {
	c, in := &w.at.cursor, s.node.Store().Incarnation()
	b := binary.BigEndian.AppendUint64(bytes.Clone(w.asked[:questionBytes]), uint64(w.to))
	for _, n := range [...]uint64{uint64(c.Position), uint64(c.Chunk), uint64(c.Block), uint64(c.Event), w.at.count} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, w.at.digest[:]...)
	kind := rpc.TokenWindow
	if signer := s.opts.Signer.checkpoints.Signer(); w.vouched && signer != nil {
		signature, err := signer.SignBytes(windowTokenTitle, slices.Concat(in[:], b, w.asked[:]))
		if err != nil {
			panic(err) // Ed25519 signs anything.
		}
		kind, b = rpc.TokenSignedWindow, append(b, signature...)
	}
	domain := windowTokens(in)
	return domain.Seal(kind, b)
}

// resumeWindow continues a window at a token.
func (s *Service) resumeWindow(w *window, token string) error {
	const passOn = ": pass on nextPageToken or resumeToken as you got it" + rpc.StartAgain
	in := s.node.Store().Incarnation()
	domain := windowTokens(in)
	changed := domain.Refused("pageToken", token, rpc.Invalid("pageToken", "was changed"+passOn))
	if k := rpc.KindOf(strings.TrimSpace(token)); k != rpc.TokenWindow && k != rpc.TokenSignedWindow {
		return rpc.Invalid("pageToken", "is not a token of a window"+passOn)
	}
	kind, b, ok := domain.Open(token)
	signed := kind == rpc.TokenSignedWindow
	var signature []byte
	if cut := len(b) - signatureBytes; signed && cut > 0 {
		b, signature = b[:cut], b[cut:]
	}
	if !ok || len(b) < questionBytes+8+len(contract.Digest{}) {
		return changed
	}
	if !bytes.Equal(b[:questionBytes], w.asked[:questionBytes]) {
		return rpc.Invalid("pageToken", "belongs to another query: send the window and the filter of the first page"+rpc.StartAgain)
	}
	ours := !signed
	if signed {
		var err error
		if ours, w.vouched, err = s.signedBefore(slices.Concat(in[:], b, w.asked[:]), signature); err != nil {
			return err
		}
	}
	if !ours || !w.place(b[questionBytes:]) {
		return changed
	}
	return nil
}

// place parses the end of the window and the cursor in it.
func (w *window) place(b []byte) bool {
	to := int64(binary.BigEndian.Uint64(b))
	rest := b[8 : len(b)-len(w.at.digest)]
	var n [5]uint64
	for i := range n {
		width := 0
		if n[i], width = binary.Uvarint(rest); width <= 0 {
			return false
		}
		rest = rest[width:]
	}
	if len(rest) > 0 || max(n[1], n[2], n[3]) > math.MaxUint32 || to <= 0 || w.to > 0 && to != w.to {
		return false
	}
	w.to = to
	w.at = windowPlace{
		cursor: storage.WindowCursor{Position: storage.Position(n[0]), Chunk: uint32(n[1]), Block: uint32(n[2]), Event: uint32(n[3])},
		count:  n[4], digest: contract.Digest(b[len(b)-len(w.at.digest):]),
	}
	return true
}

// signedBefore reports whether the cluster has signed a token, and whether with its newest key.
func (s *Service) signedBefore(token, signature []byte) (signed, newest bool, err error) {
	keys, err := signing.Keys(s.node.Store())
	if err != nil {
		return false, false, err
	}
	for i, k := range slices.Backward(keys) { // Nearly all tokens have the newest.
		if cluster, ok := proof.ClusterOf(k.PublicKey); ok && cluster == s.node.ClusterID() && proof.VerifyBytes(k.PublicKey, windowTokenTitle, token, signature) {
			return true, i == len(keys)-1, nil
		}
	}
	return false, false, nil
}
