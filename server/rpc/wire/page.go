package wire

import (
	"slices"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

const (
	// MaxPage is the most, and the default, of events in a page (READ-1).
	MaxPage = 1000
	// PageBytes closes a page or a batch early, so that it stays under what clients take by default
	// (4 MiB): one payload may add up to 1 MiB.
	PageBytes = 2 << 20
	// maxScan bounds how many events one filtered page looks at.
	maxScan = 10_000
	// StreamBatch is how many events a stream sends at a time.
	StreamBatch = 256
	// MaxTypes bounds the types that events are filtered by: every event is compared to each.
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
	Next   uint64 // where the next page goes on; 0 at the end
}

// ReadPage ends early when it has looked at maxScan events or gathered PageBytes.
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
