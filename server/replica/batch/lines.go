package batch

const (
	// A turn is one part in turns of the bytes of a proposal: with fewer lines than that, each has
	// a turn in every proposal.
	turns = 16
	// A line may reserve at most freeShare times the bytes of the queue that are free. So a line
	// alone leaves a third of the queue to others, and n lines leave 1/(1+2n).
	freeShare = 2
	// idleLines is how many lines are kept, with commands or without: to make one costs an
	// allocation.
	idleLines = 1024
)

// lines are queues that take turns (deficit round robin): in its turn, a line sends as many bytes
// as any other. What it has not used is added to its next turn, as long as it has commands. A line
// that waits alone has no limit but the size of the proposal. Batcher.mu guards all of them.
type lines struct {
	// byName has the lines with commands that are not answered yet, and some others.
	byName  map[string]*line
	waiting []*line // those with commands in their queue; the first one has its turn
}

// line is a queue of commands that keep their order.
type line struct {
	name  string
	queue []*call // Invariant: it is empty, or the line is in waiting.
	// reserved counts the bytes that were admitted and are not answered yet.
	reserved int64
	credit   int64 // bytes that the line may still send in its turn
	hasTurn  bool  // it has the credit of its current turn
}

// over reports whether a command would give a line more than its share of the queue, of which so
// many bytes are free. A line that has reserved nothing has room for a command.
func (l *lines) over(name string, size, free int64) bool {
	x := l.byName[name]
	return x != nil && x.reserved > 0 && x.reserved+size > freeShare*free
}

// add puts a command at the end of a line.
func (l *lines) add(name string, c *call) {
	x := l.byName[name]
	if x == nil {
		if l.byName == nil {
			l.byName = map[string]*line{}
		}
		x = &line{name: name}
		l.byName[name] = x
	}
	if len(x.queue) == 0 {
		l.waiting = append(l.waiting, x)
	}
	x.queue = append(x.queue, c)
	x.reserved += c.size
	c.line = x
}

// cut takes the commands of the next proposal off the lines: at least one, and others while they
// fit.
func (l *lines) cut(room int64) (calls []*call, bytes int64) {
	for full := false; len(l.waiting) > 0; {
		x, alone := l.waiting[0], len(l.waiting) == 1
		if !x.hasTurn {
			x.hasTurn, x.credit = true, x.credit+max(1, room/turns)
		}
		n := 0
		for ; n < len(x.queue) && (alone || x.queue[n].size <= x.credit); n++ {
			size := x.queue[n].size
			if full = len(calls)+n > 0 && bytes+size > room; full {
				break
			}
			x.credit -= size
			bytes += size
		}
		if alone {
			x.credit = 0 // It owes nothing for bytes that no other line wanted.
		}
		if part := x.queue[:n:n]; calls == nil {
			calls = part
		} else {
			calls = append(calls, part...)
		}
		x.queue = x.queue[n:]
		if full {
			return calls, bytes // The next proposal continues this turn.
		}
		x.hasTurn = false
		l.waiting = l.waiting[1:]
		if len(x.queue) > 0 {
			l.waiting = append(l.waiting, x)
		} else {
			x.queue, x.credit = nil, 0
		}
	}
	l.waiting = nil
	return calls, bytes
}

// release takes answered commands off what their lines have reserved.
func (l *lines) release(calls []*call) {
	for _, c := range calls {
		c.line.reserved -= c.size
		if c.line.reserved == 0 && len(l.byName) > idleLines {
			delete(l.byName, c.line.name)
		}
	}
}
