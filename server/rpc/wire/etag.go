package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// Entity tags (RFC 9110) of answers about one run. They are known without folding, reading or
// encoding the answer: they are worked out from the run's head. They are weak, because an answer
// also says how far the node is. They are equal on all nodes of a build.

// SnapshotETag returns the tag of a run's snapshot at a runSeq. passing is what the snapshot says
// in addition because of the time of the request, such as its substatus; nearly always nothing.
func SnapshotETag(r *storage.Run, seq uint64, passing ...string) string {
	return etag(r, seq, snapshotForm(), append(metadataTexts(r.Metadata), passing...))
}

// EventsETag returns the tag of a page of a run's events.
func EventsETag(r *storage.Run) string { return etag(r, r.LastSeq, eventForm(), nil) }

func etag(r *storage.Run, seq uint64, form []byte, texts []string) string {
	b := bytes.Clone(form)
	for _, text := range append([]string{r.RunID}, texts...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	// The chain tells this history from another one, such as that before a restore from a backup.
	b = append(binary.BigEndian.AppendUint64(b, uint64(r.CreatedAt)), r.Chain[:]...)
	h := sha256.Sum256(b)
	return `W/"` + strconv.FormatUint(seq, 10) + "-" + base64.RawURLEncoding.EncodeToString(h[:12]) + `"`
}

// metadataTexts are what a snapshot says of the metadata.
func metadataTexts(md *storage.Metadata) []string {
	if md == nil {
		return nil
	}
	texts := []string{md.EngineType, md.EngineRunRef, md.TriggeredBy, md.TriggerSource}
	for _, name := range slices.Sorted(maps.Keys(md.Labels)) {
		texts = append(texts, name, md.Labels[name])
	}
	if p := md.PlanRef; p != nil {
		texts = append(texts, "plan", p.URI, p.SHA256, p.SchemaVersion, p.PlanID, p.PlanVersion)
		if p.SizeBytes != nil {
			texts = append(texts, strconv.FormatInt(*p.SizeBytes, 10))
		}
		if p.Compression != nil {
			texts = append(texts, *p.Compression)
		}
		texts = append(texts, p.ExpiresAt, p.SchemaEvolutionPath)
		if h := p.MigrationHint; h != nil {
			texts = append(texts, h.SourceVersion, h.TargetVersion, h.TransformScript)
		}
	}
	return texts
}

// The forms identify how this build makes its answers: the messages, and the meaning of snapshots.
var (
	snapshotForm = sync.OnceValue(func() []byte { return formOf(runlogv1.File_runlog_v1_snapshot_proto, run.StoredFormat) })
	eventForm    = sync.OnceValue(func() []byte { return formOf(runlogv1.File_runlog_v1_event_proto, 0) })
)

func formOf(file protoreflect.FileDescriptor, format byte) []byte {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(file))
	if err != nil {
		panic("wire: descriptor of " + file.Path() + ": " + err.Error())
	}
	h := sha256.Sum256(append(text, format))
	return h[:]
}

// MatchETag reports whether a list of tags, as in the header If-None-Match, has a tag. Tags are
// compared weakly.
func MatchETag(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || one != "" && strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
