package monitor

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"runlog/proto/contract"
)

// maxLinks is how many runs a monitor remembers: some 20 MB.
const maxLinks = 100_000

// links has the last record of the runs that were read last. It is in memory alone: a record whose
// predecessor is not here is verified too, but that it follows it is not.
type links struct {
	runs *lru.Cache[string, link]
}

type link struct {
	seq   uint64
	chain contract.Digest
}

func newLinks() *links {
	runs, err := lru.New[string, link](maxLinks)
	if err != nil {
		panic(err) // The size is positive.
	}
	return &links{runs}
}

func (l *links) get(run string) (link, bool) { return l.runs.Get(run) }
func (l *links) put(run string, at link)     { l.runs.Add(run, at) }
func (l *links) clear()                      { l.runs.Purge() }
