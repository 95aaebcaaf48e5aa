package delivery

import (
	"maps"
	"slices"
	"time"
)

// shareEvery is how often memory is taken from subscribers that do not use it, while others starve.
const shareEvery = 400 * time.Millisecond

// starves remembers a subscriber that would do more if it had memory.
func (t *term) starves(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hungry[s] = struct{}{}
}

func (t *term) takeHungry() []*subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Collect(maps.Keys(t.hungry))
	clear(t.hungry)
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
		list := t.takeHungry()
		if len(list) > 0 && t.opts.Memory.Spent() {
			for _, s := range t.list() {
				s.call(s.squeeze)
			}
		}
		for _, s := range list { // One that still starves is hungry again.
			s.post(func() { s.nudged = true })
		}
	}
}

// squeeze takes the memory from a subscriber that has handed out little lately.
func (s *subscriber) squeeze() {
	if !s.closed && s.window.Slow() {
		s.window.Spill()
	}
}
