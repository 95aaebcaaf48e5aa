package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// AnswerBytes bounds an answer, unless its request allows more (READ-8): the 4 MiB that gRPC
	// clients take by default.
	AnswerBytes = 4 << 20
	// MostAnswerBytes is the most that a request may allow.
	MostAnswerBytes = 64 << 20
	// restBytes is room for what an answer has in addition to a snapshot: tokens and the state of
	// the node.
	restBytes = 16 << 10
)

// PageOfSnapshot asks for a page of a snapshot (READ-8).
type PageOfSnapshot struct {
	// From is the place that the page before returned; the zero value: the first page.
	From Place
	// Steps is the maximum of steps; 0: as many as fit.
	Steps int
	// Bytes bounds the encoding. A page may exceed it with its first entry.
	Bytes int
}

// FirstPage returns the first page of a snapshot in an answer of so many bytes; 0, or less than
// AnswerBytes: that many.
func FirstPage(answerBytes uint32) PageOfSnapshot {
	return PageOfSnapshot{Bytes: max(AnswerBytes, int(answerBytes)) - restBytes}
}

// Place is where a page of a snapshot begins: how many entries of the lists are on the pages
// before, in the order of the lists.
type Place struct {
	Signals, Pending, Steps uint32
	// Attempts are those of the step at Steps. A step has some here only if its attempts alone
	// exceed a page.
	Attempts  uint32
	Artifacts uint32
}

// snapshotPage is a page that is being filled.
type snapshotPage struct {
	*runlogv1.RunSnapshot
	room    int // bytes
	entries int
}

// take reports whether an entry of a list fits, and takes its room. The first one always fits.
func (p *snapshotPage) take(list protowire.Number, entry proto.Message) bool {
	size := protowire.SizeTag(list) + protowire.SizeBytes(proto.Size(entry))
	if size > p.room && p.entries > 0 {
		return false
	}
	p.room -= size
	p.entries++
	return true
}

// The numbers of the lists in RunSnapshot and StepSnapshot.
const (
	listSteps     = 11
	listArtifacts = 12
	listSignals   = 21
	listPending   = 28
	listAttempts  = 10
)

// encodePage returns a page of at most room bytes, without the fields that depend on the time of
// the request, and the place where the next page begins; nil: it is the last one.
func encodePage(s *run.Snapshot, q PageOfSnapshot, room int) (*runlogv1.RunSnapshot, *Place) {
	p := snapshotPage{RunSnapshot: encodeFields(s)}
	at := q.From
	if at == (Place{}) {
		for i := range s.Inconsistencies {
			p.Inconsistencies = append(p.Inconsistencies, encodeInconsistency(&s.Inconsistencies[i]))
		}
	}
	p.room = room - proto.Size(p.RunSnapshot)
	for ; int(at.Signals) < len(s.Signals); at.Signals++ {
		m := encodeSignal(&s.Signals[at.Signals])
		if !p.take(listSignals, m) {
			return p.RunSnapshot, &at
		}
		p.Signals = append(p.Signals, m)
	}
	for ; int(at.Pending) < len(s.Pending); at.Pending++ {
		m := encodePending(&s.Pending[at.Pending])
		if !p.take(listPending, m) {
			return p.RunSnapshot, &at
		}
		p.PendingSignals = append(p.PendingSignals, m)
	}
	for step := s.Steps.At(at.Steps); step != nil; step = s.Steps.At(at.Steps) {
		if q.Steps > 0 && len(p.Steps) == q.Steps || !p.step(step, &at) {
			return p.RunSnapshot, &at
		}
	}
	for ; int(at.Artifacts) < len(s.Artifacts); at.Artifacts++ {
		m := encodeArtifact(&s.Artifacts[at.Artifacts])
		if !p.take(listArtifacts, m) {
			return p.RunSnapshot, &at
		}
		p.Artifacts = append(p.Artifacts, m)
	}
	return p.RunSnapshot, nil
}

// step takes the step at a place and moves the place. It returns false if the page is full. The
// attempts of a step are divided only if they alone exceed a page.
func (p *snapshotPage) step(s *run.StepSnapshot, at *Place) bool {
	m, skip := EncodeStep(s), at.Attempts
	base := proto.Size(m)
	for a := range s.Attempts.All() {
		if skip > 0 {
			skip--
			continue
		}
		m.Attempts = append(m.Attempts, encodeAttempt(a))
	}
	if size := protowire.SizeTag(listSteps) + protowire.SizeBytes(proto.Size(m)); size > p.room {
		if p.entries > 0 {
			return false
		}
		room, fit := p.room-base-protowire.SizeTag(listSteps)-protowire.SizeVarint(AnswerBytes), 0
		for fit < len(m.Attempts) {
			room -= protowire.SizeTag(listAttempts) + protowire.SizeBytes(proto.Size(m.Attempts[fit]))
			if room < 0 && fit > 0 {
				break
			}
			fit++
		}
		if fit < len(m.Attempts) {
			m.Attempts, at.Attempts = m.Attempts[:fit], at.Attempts+uint32(fit)
			p.Steps = append(p.Steps, m)
			return false
		}
	}
	p.take(listSteps, m)
	p.Steps = append(p.Steps, m)
	at.Steps, at.Attempts = at.Steps+1, 0
	return true
}
