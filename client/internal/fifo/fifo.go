// Package fifo has a queue in a slice.
package fifo

// Queue is first in, first out. The zero value is empty.
type Queue[T any] struct {
	items []T
	from  int
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) - q.from }

// First returns the oldest item. The queue must not be empty.
func (q *Queue[T]) First() T { return q.items[q.from] }

// Push adds an item at the end.
func (q *Queue[T]) Push(item T) {
	if q.from > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.from:])
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// Pop removes the oldest item and returns it. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	item := q.items[q.from]
	var zero T
	q.items[q.from] = zero
	if q.from++; q.from == len(q.items) {
		q.items, q.from = q.items[:0], 0
	}
	return item
}
