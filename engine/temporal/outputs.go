package temporal

import (
	"container/list"
	"encoding/json"
	"sync"
)

// Limits of the outputs that a worker keeps.
const (
	maxOutputs      = 10_000
	maxOutputsBytes = 16 << 20
)

// place is that of an event in the log, which has the same event there forever.
type place struct {
	run string
	seq uint64
}

// outputs keeps the newest outputs of a worker, by the places of their StepCompleted. Steps that
// follow at the same worker do not read them in the log again.
type outputs struct {
	mu     sync.Mutex
	kept   map[place]*list.Element
	oldest *list.List // of output
	bytes  int
}

type output struct {
	at   place
	text json.RawMessage
}

func (o *outputs) get(at place) (text json.RawMessage, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.kept[at]; e != nil {
		return e.Value.(output).text, true
	}
	return nil, false
}

func (o *outputs) put(at place, text json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept == nil {
		o.kept, o.oldest = map[place]*list.Element{}, list.New()
	}
	if o.kept[at] != nil {
		return
	}
	o.kept[at] = o.oldest.PushBack(output{at, text})
	o.bytes += len(text)
	for o.oldest.Len() > maxOutputs || o.bytes > maxOutputsBytes {
		first := o.oldest.Remove(o.oldest.Front()).(output)
		delete(o.kept, first.at)
		o.bytes -= len(first.text)
	}
}
