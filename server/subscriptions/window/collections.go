package window

// list is a queue of lanes.
type list struct {
	first, last *lane
	n           int
}

func (q *list) push(l *lane) {
	if q.last == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
	q.n++
}

// remove takes a lane out that is in the queue.
func (q *list) remove(l *lane) {
	var before *lane
	for at := q.first; at != l; at = at.next {
		before = at
	}
	if before == nil {
		q.first = l.next
	} else {
		before.next = l.next
	}
	if q.last == l {
		q.last = before
	}
	l.next = nil
	q.n--
}

// timers is a container/heap of lanes, the earliest first.
type timers []*lane

// Len implements sort.Interface.
func (t timers) Len() int { return len(t) }

// Less implements sort.Interface.
func (t timers) Less(i, j int) bool { return t[i].timer < t[j].timer }

// Swap implements sort.Interface.
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	l := x.(*lane)
	l.index = len(*t)
	*t = append(*t, l)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	old := *t
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	return l
}
