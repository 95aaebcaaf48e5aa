package sim

import "slices"

// Shrink looks for few faults of a plan of n that are enough for fails to hold, by leaving out ever
// smaller parts of those that are left (delta debugging, Zeller and Hildebrandt 2002). It asks at
// most so many times; the answer is the smallest set that failed. A world is not quite the same
// each time that it is made, so fails may try more than once.
func Shrink(n, asks int, fails func(keep []int) bool) []int {
	keep := make([]int, n)
	for i := range keep {
		keep[i] = i
	}
	for part := (n + 1) / 2; part > 0 && asks > 0; {
		shorter := false
		for at := 0; at < len(keep) && asks > 0; {
			rest := slices.Delete(slices.Clone(keep), at, min(at+part, len(keep)))
			asks--
			if fails(rest) {
				keep, shorter = rest, true
				continue
			}
			at += part
		}
		if !shorter {
			part /= 2
		}
	}
	return keep
}
