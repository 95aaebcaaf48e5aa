package wire

import (
	"slices"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
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

// PageQuery asks for the events of a run after one runSeq and up to another.
type PageQuery struct {
	After, Last uint64
	Size        int
	Types       []string // empty: all
	Form        runlogv1.PayloadForm_Form
}

// Page is a part of a run's events.
type Page struct {
	Events []*runlogv1.EventRecord
	Next   uint64 // cursor of the next page; 0 at the end
}

// ReadPage reads a page. It ends early after maxScan events or PageBytes.
func ReadPage(v *storage.View, q PageQuery) (Page, error) {
	var p Page
	var looked, bytes int
	at := q.After
	for rec, err := range v.Events(q.After) {
		if err != nil {
			return Page{}, err
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
			return Page{}, err
		}
		bytes += proto.Size(m)
		p.Events = append(p.Events, m)
	}
	return p, nil
}
