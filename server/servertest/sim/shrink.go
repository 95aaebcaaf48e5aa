package sim

import "slices"

// Shrink searches a plan of n faults for a small set that still fails. It leaves out ever smaller
// parts (delta debugging, Zeller and Hildebrandt 2002), calls fails at most asks times, and returns
// the smallest set that failed. A run does not repeat exactly, so fails may try more than once.
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
