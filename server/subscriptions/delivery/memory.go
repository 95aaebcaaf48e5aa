package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// shareEvery is how often memory is taken from subscribers that do not use it, while others starve.
const shareEvery = 400 * time.Millisecond

// hungry are the subscribers that read on as soon as there is memory.
type hungry struct {
	mu  sync.Mutex
	set map[*subscriber]struct{}
}

func (h *hungry) add(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set[s] = struct{}{}
}

func (h *hungry) remove(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.set, s)
}

func (h *hungry) takeAll() []*subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Collect(maps.Keys(h.set))
	clear(h.set)
	return list
}

// share divides the memory of all windows until the term ends: no subscriber may hold so much of it
// for long that others wait (BUS-9).
func (t *term) share() {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
		list := t.hungry.takeAll()
		if len(list) > 0 && t.opts.Memory.Spent() {
			for _, s := range t.list() {
				s.squeeze()
			}
		}
		for _, s := range list { // One that still starves is hungry again.
			s.mu.Lock()
			s.kickLocked()
			s.mu.Unlock()
		}
	}
}

// squeeze takes the memory from a subscriber that has handed out little lately.
func (s *subscriber) squeeze() {
	s.term.tailing.Lock()
	defer s.term.tailing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.window.Slow() {
		s.detachLocked()
		s.window.Spill()
	}
}

// starveLocked remembers a subscriber that would do more if it had memory.
func (s *subscriber) starveLocked() {
	if !s.closed && s.window.Starves() {
		s.term.hungry.add(s)
	}
}
