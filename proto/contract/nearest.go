package contract

import "strings"

// maxEdits is how many typing errors a suggestion bridges.
const maxEdits = 2

// Nearest returns the name of a list that a name probably means: equal except for letter case,
// separators and two typing errors; empty: none.
func Nearest(name string, names []string) (found string) {
	best := maxEdits + 1
	name = plainName(name)
	for _, candidate := range names {
		plain := plainName(candidate)
		// Two errors in a short name leave nothing recognisable.
		if d := distance(name, plain, best); d < best && 3*d <= len(plain) {
			found, best = candidate, d
		}
	}
	return found
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

func plainName(name string) string { return strings.ToLower(separators.Replace(name)) }

// distance is the Levenshtein distance: the number of bytes to add, drop or change. Distances from
// most on are most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], most)
}
