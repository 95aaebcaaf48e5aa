package queue

import (
	"time"

	"runlog/storage"
)

// Counting returns a machine that counts the rows that it reads.
func Counting(reads *int) Machine { return Machine{reads: reads} }

// CountDrains is ListDrains, and counts what it reads.
func CountDrains(s *storage.Store, at int64, standard time.Duration, n int) (list []Drain, reads int, err error) {
	err = view(s, func(r storage.TableReader) (err error) {
		list, err = drains(counted{r, &reads}, at, standard, n)
		return err
	})
	return list, reads, err
}
