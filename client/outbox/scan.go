package outbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Range is a range of bytes of a file.
type Range struct {
	From, To int64 // To is exclusive
}

// Recovery says what is damaged in a file.
type Recovery struct {
	// Header: the header is damaged.
	Header bool
	// Damaged are ranges in which no record can be read, in bytes of the damaged file. They come in
	// rising order; if there are many, the last one covers the rest.
	Damaged []Range
	// Lost is the number of records that are known to be lost, by their missing ids. It is a lower
	// bound if the end of the file or its header is damaged.
	Lost int
	// Torn is the number of bytes at the end that are no whole frame: a write that did not finish,
	// of which no Put was acknowledged.
	Torn int64
	// Copy is the path of a copy of the damaged file. Empty: nothing but Torn was found, or the
	// file was not repaired.
	Copy string
	// Dropped is the path of an older copy that was removed, because there were too many.
	Dropped string
}

// IsDamaged reports whether records may be lost.
func (r Recovery) IsDamaged() bool { return r.Header || len(r.Damaged) > 0 || r.Lost > 0 }

// String returns the damage on one line; empty: there is none.
func (r Recovery) String() string {
	var parts []string
	if r.Header {
		parts = append(parts, "the header is damaged")
	}
	if len(r.Damaged) > 0 {
		text := "unreadable bytes"
		for i, d := range r.Damaged {
			if i == 8 {
				text += fmt.Sprintf(" and %d more ranges", len(r.Damaged)-i)
				break
			}
			text += fmt.Sprintf(" %d-%d", d.From, d.To-1)
		}
		parts = append(parts, text)
	}
	if r.Lost > 0 {
		parts = append(parts, fmt.Sprintf("lost records: at least %d", r.Lost))
	}
	if r.Torn > 0 {
		parts = append(parts, fmt.Sprintf("unfinished write of %d bytes at the end", r.Torn))
	}
	if r.Copy != "" {
		parts = append(parts, "a copy of the damaged file is "+r.Copy)
	}
	if r.Dropped != "" {
		parts = append(parts, "the older copy "+r.Dropped+" was removed")
	}
	return strings.Join(parts, "; ")
}

// maxRanges bounds Recovery.Damaged.
const maxRanges = 64

// scan is what a file contains.
type scan struct {
	index *index
	// next is the lowest id that is not used yet.
	next uint64
	// end is where the next frame goes: everything from here on is Torn.
	end      int64
	recovery Recovery
}

// errVersion is wrapped by the error of a file that a newer version has written.
var errVersion = errors.New("the file was written by a newer version; use that version")

// errForeign is wrapped by the error of a file that is no outbox.
var errForeign = errors.New("the file is no outbox")

// scanFile reads a file of size bytes.
func scanFile(f io.ReaderAt, size int64) (*scan, error) {
	first := make([]byte, min(size, headerBytes))
	if _, err := f.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head, ours, intact := decodeHeader(first)
	if intact && head.version > formatVersion {
		return nil, fmt.Errorf("%w (format %d; this version knows %d)", errVersion, head.version, formatVersion)
	}
	intact = intact && head.version == formatVersion
	s := &scanner{put: map[uint64]bool{}, gone: map[uint64]bool{}}
	s.index = newIndex()
	if intact {
		s.head, s.last, s.good = head, max(head.next, 1)-1, headerBytes
	}
	s.recovery.Header = !intact
	if err := s.frames(io.NewSectionReader(f, s.good, size-s.good), size); err != nil {
		return nil, err
	}
	if !intact && s.seen == 0 {
		if ours && head.version > formatVersion {
			return nil, fmt.Errorf("%w (format %d), or its header is damaged", errVersion, head.version)
		}
		// A crash may leave the beginning of a file, with zero bytes behind it.
		have, name := bytes.TrimRight(first, "\x00"), bytes.TrimRight(magic, "\x00")
		if !bytes.HasPrefix(have, name) && !bytes.HasPrefix(name, have) {
			return nil, fmt.Errorf("%w, or nothing of it can be read; name another file, or move this one away", errForeign)
		}
	}
	s.next, s.recovery.Lost = s.last+1, s.lost()
	return new(s.scan), nil
}

// scanner finds the frames of a file. A frame is a run of bytes between two zero bytes that
// decodes, so that damage never hides the frame after it.
type scanner struct {
	scan
	head header // zero if it is damaged
	// good is where the last intact frame ends.
	good int64
	seen int // intact frames
	// Behind good: runs that are no frame, and where the last of them ends.
	bad    int
	badEnd int64

	last, lastPut uint64 // the highest id of all frames, and of the puts
	put           map[uint64]bool
	// gone are the ids of removals. Those without a put are no loss.
	gone map[uint64]bool
}

// frames reads a file of size bytes from good on.
func (s *scanner) frames(r io.Reader, size int64) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var run []byte
	for from, pos := s.good, s.good; ; {
		part, err := in.ReadSlice(0)
		pos += int64(len(part))
		if pos-from <= maxFrameBytes {
			run = append(run, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			s.tail(run, from, size)
			return nil
		case err != nil:
			return err
		}
		if pos-from > 1 {
			s.take(run[:len(run)-1], from, pos-1)
		}
		run, from = run[:0], pos
	}
}

// take takes the run of bytes from..to, which zero bytes enclose.
func (s *scanner) take(run []byte, from, to int64) {
	if int64(len(run)) != to-from || !s.frame(run, from, to+1) {
		s.bad++
		s.badEnd = to
	}
}

// frame takes a run of bytes if it is a frame, which ends at end.
func (s *scanner) frame(run []byte, from, end int64) bool {
	f, err := decodeFrame(run)
	if err != nil || !s.apply(f, max(from-1, s.good), end) {
		return false
	}
	s.damaged(s.good, from-1)
	s.good, s.bad = end, 0
	s.seen++
	return true
}

// damaged notes a range in which there is no intact frame.
func (s *scanner) damaged(from, to int64) {
	if from >= to {
		return
	}
	d := &s.recovery.Damaged
	if len(*d) == maxRanges {
		(*d)[maxRanges-1].To = to
		return
	}
	*d = append(*d, Range{from, to})
}

// tail takes the run behind the last zero byte, which begins at from.
func (s *scanner) tail(run []byte, from, size int64) {
	s.end = size
	whole := int64(len(run)) == size-from
	if whole && s.frame(run, from, size) {
		return // Its last zero byte is missing. The next frame begins with another.
	}
	if whole && len(run) > 0 && s.frame(run[:len(run)-1], from, size-1) {
		s.damaged(size-1, size) // Its last zero byte is damaged.
		return
	}
	// An unfinished write leaves the beginning of a frame, or zero bytes that the file system made,
	// or both. A frame that was written has one zero byte behind it. A few more are damage.
	zeroed := s.bad == 1 && len(run) == 0 && size-s.badEnd > 8
	if s.bad == 0 || zeroed {
		s.end, s.recovery.Torn = s.good, size-s.good
		return
	}
	s.damaged(s.good, size)
}

// maxID bounds ids, so that they cannot overflow.
const maxID = 1 << 62

// apply takes a frame of the file. It reports false for one that no writer has put there.
func (s *scanner) apply(f frame, offset, end int64) bool {
	switch f.kind {
	case kindPut:
		if f.id <= s.lastPut || f.id > maxID {
			return false
		}
		s.lastPut = f.id
		s.put[f.id] = true
		if !s.gone[f.id] {
			s.index.add(&entry{id: f.id, offset: offset, size: int(end - offset)})
		}
	case kindReject:
		if f.id > maxID {
			return false
		}
		s.index.reject(f.id, f.at, string(f.data))
	case kindRemove:
		for _, id := range f.ids {
			if id > maxID {
				return false
			}
		}
		for _, id := range f.ids {
			s.gone[id] = true
			s.last = max(s.last, id)
			_ = s.index.remove(id, pending) || s.index.remove(id, rejected)
		}
	}
	s.last = max(s.last, f.id)
	return true
}

// lost counts the records that must have been in the file and are missing.
func (s *scanner) lost() int {
	if s.recovery.Header {
		return 0 // Not known: the header says from which id on there is no gap.
	}
	carried, since := int64(s.head.carried), int64(s.last-s.head.next+1)
	miss := func(id uint64) {
		if id < s.head.next {
			carried--
		} else {
			since--
		}
	}
	for id := range s.put {
		miss(id)
	}
	for id := range s.gone {
		if !s.put[id] {
			miss(id)
		}
	}
	return int(max(carried, 0) + max(since, 0))
}
