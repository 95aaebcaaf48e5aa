package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"

	"runlog/audit/proof"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// A window's token holds for as long as the cluster, at every node: what it names lies where it
// lies.
//
//	kind:1 question:8 to:8 position chunk block event count digest:32 check:8 signature:64
//
// The numbers in the middle are uvarints. Question is the begin of a hash, and check a hash of the
// cluster and of all before it: both tell mistakes, and keep no secret. The signature is by the
// cluster's key, over the token up to there and the whole hash of the question: it is what lets the
// cluster sign at the end what others than the answering node have counted. A token of the kind
// without a signature is of a node that lacked the key, or goes on from such a one.
const (
	windowTokenHeader = 1 + sumBytes + 8
	windowTokenTitle  = "runlog window token 1"
	signatureBytes    = 64
)

// hash tells questions apart. How pages are cut and payloads shown is no part of one.
func (w *window) hash() [sha256.Size]byte {
	f := &w.filter
	b := binary.BigEndian.AppendUint64([]byte("runlog/window question/1\x00"), uint64(w.from))
	b = binary.BigEndian.AppendUint64(b, uint64(w.to))
	for _, text := range append([]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID, f.RunID, f.StepID}, f.Types...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return sha256.Sum256(b)
}

// windowToken is where a window's answer goes on.
func (s *Server) windowToken(w *window) string {
	kind := byte(tokenWindow)
	signer := s.sealer.Load().Signer()
	if w.vouched && signer != nil {
		kind = tokenSignedWindow
	}
	b := append([]byte{kind}, w.asked[:sumBytes]...)
	b = binary.BigEndian.AppendUint64(b, uint64(w.to))
	c := &w.at.cursor
	for _, n := range [...]uint64{uint64(c.Position), uint64(c.Chunk), uint64(c.Block), uint64(c.Event), w.at.count} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, w.at.digest[:]...)
	b = append(b, sum([]byte("runlog/window token/1"), s.clusterID[:], b)...)
	if kind == tokenSignedWindow {
		signature, err := signer.SignBytes(windowTokenTitle, append(b[:len(b):len(b)], w.asked[:]...))
		if err != nil {
			panic(err) // Ed25519 signs anything
		}
		b = append(b, signature...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// resumeWindow takes up a window where a token says.
func (s *Server) resumeWindow(w *window, token string) error {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) == 0 || b[0] != tokenWindow && b[0] != tokenSignedWindow {
		return invalid("pageToken", "is not a token of a window: pass on nextPageToken or resumeToken as you got it"+beginAnew)
	}
	const changed = "was changed on the way, or is of another cluster: pass on nextPageToken or resumeToken as you got it" + beginAnew
	signed := b[0] == tokenSignedWindow
	var signature []byte
	if cut := len(b) - signatureBytes; signed && cut > 0 {
		b, signature = b[:cut], b[cut:]
	}
	if len(b) < windowTokenHeader+len(contract.Digest{})+sumBytes {
		return invalid("pageToken", changed)
	}
	end := len(b) - sumBytes
	if !bytes.Equal(b[end:], sum([]byte("runlog/window token/1"), s.clusterID[:], b[:end])) {
		return invalid("pageToken", changed)
	}
	if !bytes.Equal(b[1:1+sumBytes], w.asked[:sumBytes]) {
		return invalid("pageToken", "is of another query: send the window and the filter with which that one began"+beginAnew)
	}
	if signed {
		if w.vouched, err = s.signedBefore(append(b[:len(b):len(b)], w.asked[:]...), signature); err != nil {
			return err
		}
	}
	if signed != w.vouched || !w.place(b[1+sumBytes:end]) {
		return invalid("pageToken", changed)
	}
	return nil
}

// place reads the end of the window and the place in it.
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

// signedBefore tells whether the cluster has signed a token, with any of its keys.
func (s *Server) signedBefore(token, signature []byte) (bool, error) {
	keys, err := signing.Keys(s.store)
	if err != nil {
		return false, err
	}
	for _, k := range keys {
		if cluster, ok := proof.ClusterOf(k.PublicKey); ok && cluster == s.clusterID && proof.VerifyBytes(k.PublicKey, windowTokenTitle, token, signature) {
			return true, nil
		}
	}
	return false, nil
}
