package record

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// createDigest fingerprints what CreateRun said, so that a retry is told from another run under the
// same name (APP-12). Each text is preceded by its length; labels go in the order of their names.
func createDigest(c *Creation) []byte {
	h := sha256.New()
	h.Write([]byte("runlog/create/1\x00"))
	md := &c.Metadata
	writeTexts(h, c.Scope.TenantID, c.Scope.ProjectID, c.Scope.EnvironmentID)
	writeTexts(h, md.EngineType, md.EngineRunRef, md.TriggeredBy, md.TriggerSource)
	if r := md.PlanRef; r != nil {
		writeTexts(h, r.URI, r.SHA256, r.SchemaVersion, r.PlanID, r.PlanVersion)
		if r.SizeBytes != nil {
			writeTexts(h, "sizeBytes")
			writeNumber(h, uint64(*r.SizeBytes))
		}
		if r.Compression != nil {
			writeTexts(h, "compression", *r.Compression)
		}
	}
	names := make([]string, 0, len(md.Labels))
	for name := range md.Labels {
		names = append(names, name)
	}
	slices.Sort(names)
	writeNumber(h, uint64(len(names)))
	for _, name := range names {
		writeTexts(h, name, md.Labels[name])
	}
	return h.Sum(nil)
}

func writeTexts(h hash.Hash, texts ...string) {
	for _, t := range texts {
		writeNumber(h, uint64(len(t)))
		h.Write([]byte(t))
	}
}

func writeNumber(h hash.Hash, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	h.Write(b[:])
}
