// Package rowcache keeps rows of machines that were read or written most recently, so that apply
// seldom asks the database for them.
//
//	Get ──► newer ──► older     what is found in older moves to newer
//	Put ──► newer               once newer is full, it takes the place of older
//
// A row thus goes once it was not used while half of the limit was.
//
// Invariant: what a Cache says of a row is what Put said last.
package rowcache

// rowBytes is about what a row takes in addition to its key and value: two headers, and its part of
// a map.
const rowBytes = 128

// Cache is a set of rows, bounded by bytes. One goroutine uses it.
type Cache struct {
	newer, older generation
	half         int // of the limit: what a generation may hold
}

// generation are rows by their keys.
type generation struct {
	rows  map[string]*row
	bytes int
}

type row struct {
	key   string
	value []byte // nil: there is no such row
}

func (r *row) size() int { return rowBytes + len(r.key) + len(r.value) }

// New returns a cache of at most so many bytes. A limit too small for a row keeps none.
func New(limit int) *Cache {
	made := func() generation { return generation{rows: map[string]*row{}} }
	return &Cache{newer: made(), older: made(), half: limit / 2}
}

// Get returns what the cache knows of a row. known with a nil value says that there is no such row.
// The value must not be changed.
func (c *Cache) Get(key []byte) (value []byte, known bool) {
	r := c.newer.rows[string(key)]
	if r == nil {
		if r = c.older.take(key); r == nil {
			return nil, false
		}
		c.add(r)
	}
	return r.value, true
}

// Put puts a row into the cache; nil as value: there is no such row. The cache keeps the value, and
// copies the key.
func (c *Cache) Put(key, value []byte) {
	r := c.take(key)
	if r == nil {
		r = &row{key: string(key)}
	}
	r.value = value
	c.add(r)
}

// Forget makes the cache know nothing of a row.
func (c *Cache) Forget(key []byte) { c.take(key) }

// Bytes is about what the cache takes in memory.
func (c *Cache) Bytes() int { return c.newer.bytes + c.older.bytes }

func (c *Cache) take(key []byte) *row {
	if r := c.newer.take(key); r != nil {
		return r
	}
	return c.older.take(key)
}

// add adds a row that neither generation has, unless it is too large.
func (c *Cache) add(r *row) {
	size := r.size()
	if size > c.half {
		return
	}
	if c.newer.bytes+size > c.half {
		clear(c.older.rows)
		c.newer, c.older = generation{rows: c.older.rows}, c.newer
	}
	c.newer.rows[r.key] = r
	c.newer.bytes += size
}

// take removes a row; nil: there is none.
func (g *generation) take(key []byte) *row {
	r := g.rows[string(key)]
	if r != nil {
		delete(g.rows, r.key)
		g.bytes -= r.size()
	}
	return r
}
