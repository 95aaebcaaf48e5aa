package queue

import (
	"time"

	"runlog/storage"
	"runlog/storage/table"
)

// Counting returns a machine that counts the rows that it reads.
func Counting(reads *int) Machine { return Machine{reads: reads} }

// CountDrains is ListDrains, and counts what it reads.
func CountDrains(s *storage.Store, at int64, standard time.Duration, n int) (list []Drain, reads int, err error) {
	list, err = storage.ReadTables(s, Kind, func(r table.Reader) ([]Drain, error) {
		return drains(counted{r, &reads}, at, standard, n)
	})
	return list, reads, err
}
