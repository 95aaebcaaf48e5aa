package history

import (
	"encoding/binary"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// checkTrees requires the root of each node's tree of records, at each size at which it was seen,
// to be that of its log (TR-1). So the roots of all nodes are equal at equal sizes, because their
// logs are (I3). Sizes beyond the log that was read are left out.
func (c *checker) checkTrees(finals []*Final) {
	for _, f := range finals {
		var stored []tlog.Hash
		log := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			out := make([]tlog.Hash, len(indexes))
			for i, index := range indexes {
				out[i] = stored[index]
			}
			return out, nil
		})
		trees := slices.Clone(f.Trees)
		slices.SortFunc(trees, func(a, b TreeRoot) int { return int(a.Size - b.Size) })
		position, offset, size := uint64(0), uint32(0), int64(0)
		for _, have := range trees {
			for ; size < min(have.Size, int64(len(f.Records))); size++ {
				r := &f.Records[size]
				if offset++; r.Position != position {
					position, offset = r.Position, 0
				}
				hashes, err := tlog.StoredHashes(size, leaf(r, offset), log)
				if err != nil {
					panic(err) // the reader has all of them
				}
				stored = append(stored, hashes...)
			}
			if have.Size > size {
				break
			}
			c.report.count("trees", 1)
			want, err := tlog.TreeHash(have.Size, log)
			if err != nil {
				panic(err)
			}
			if have.Root != Digest(want) {
				c.report.Add(Rooted, "", nil, "node %s has a tree of %d records with root %s, its log comes to %s",
					f.Node, have.Size, have.Root, Digest(want))
			}
		}
	}
}

// leaf is the data of a leaf, as docs/formats.md describes them.
func leaf(r *Record, offset uint32) []byte {
	b := append([]byte("runlog/leaf/1\x00"), r.ChainDigest[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Position)
	b = binary.BigEndian.AppendUint32(b, offset)
	return binary.BigEndian.AppendUint64(b, uint64(r.PersistedAt))
}
