package wire

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/storage"
)

const (
	// MaxPage is the maximum, and the default, of events in a page (READ-1).
	MaxPage = 1000
	// PageBytes ends a page or a batch early, so that it stays below the 4 MiB that clients accept
	// by default. One payload may add up to 1 MiB.
	PageBytes = 2 << 20
	// maxScan bounds how many events one filtered page reads.
	maxScan = 10_000
	// StreamBatch is the maximum of events in one message of a stream.
	StreamBatch = 256
	// MaxTypes bounds the types of a filter, because every event is compared with each.
	MaxTypes = 100
)

// Fitting returns how many entries of a list one answer has: at least one, and about PageBytes.
func Fitting[M proto.Message](list []M) int {
	bytes := 0
	for i, m := range list {
		if bytes += proto.Size(m); bytes > PageBytes && i > 0 {
			return i
		}
	}
	return len(list)
}

// PageQuery asks for the events of a run after one runSeq and up to another.
type PageQuery struct {
	After, Last uint64
	Size        int
	Types       []string // empty: all
	Form        runlogv1.PayloadForm_Form
	// Memory is the budget from which the page draws while it grows.
	Memory *budget.Budget
}

// Page is a part of a run's events.
type Page struct {
	Events []*runlogv1.EventRecord
	Next   uint64 // cursor of the next page; 0 at the end
	grant  budget.Grant
}

// Release returns what the page has of the budget. It is called when the page has been sent, or is
// part of an answer, which counts itself.
func (p *Page) Release() { p.grant.Release() }

const (
	// pagePiece is how much a page draws at a time, in bytes.
	pagePiece = 128 << 10
	// PageForms is how often events are in memory while a page is read: as they were stored, and as
	// they are sent.
	PageForms = 2
)

// grow makes a page of so many bytes count. Error: OVERLOADED.
func (p *Page) grow(bytes int, drawn *int) error {
	if bytes <= budget.Uncounted || PageForms*bytes <= *drawn {
		return nil
	}
	more := max(pagePiece, PageForms*bytes-*drawn)
	*drawn += more
	return p.grant.Grow(int64(more))
}

// ReadPage reads a page. It ends early after maxScan events or PageBytes. Error: OVERLOADED, if it
// does not fit into the budget, or that of the context while it waits for its turn.
func ReadPage(ctx context.Context, v *storage.View, q PageQuery) (Page, error) {
	done, err := q.Memory.Turn(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	p, err := readPage(v, q)
	if err != nil {
		p.Release()
		return Page{}, err
	}
	return p, nil
}

func readPage(v *storage.View, q PageQuery) (Page, error) {
	var p Page
	var err error
	if p.grant, err = q.Memory.Acquire(budget.Shared, 0); err != nil {
		return p, err
	}
	var looked, bytes, drawn int
	at := q.After
	for rec, err := range v.Events(q.After) {
		if err != nil {
			return p, err
		}
		if rec.RunSeq > q.Last {
			break
		}
		if len(p.Events) == q.Size || looked == maxScan || bytes >= PageBytes {
			p.Next = at
			break
		}
		looked++
		at = rec.RunSeq
		if len(q.Types) > 0 && !slices.Contains(q.Types, rec.Type) {
			continue
		}
		m, err := Record(rec, q.Form)
		if err != nil {
			return p, err
		}
		bytes += proto.Size(m)
		if err := p.grow(bytes, &drawn); err != nil {
			return p, err
		}
		p.Events = append(p.Events, m)
	}
	return p, nil
}
