package config

import "slices"

// Nearest returns the known name with the fewest edits to get from got to it.
// There is always one: a bad guess still shows what names look like.
func Nearest(got string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return distance(got, a) - distance(got, b) })
}

// distance is the number of inserted, removed or replaced characters.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
