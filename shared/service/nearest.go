package service

// Nearest returns the known word with the smallest edit distance to word, or "" where none is near: more than a third of
// the longer word would have to change. Ties go to the first.
func Nearest(word string, known []string) string {
	best, bestDist := "", -1
	for _, k := range known {
		d := distance(word, k)
		if d*3 > max(len(word), len(k)) {
			continue
		}
		if bestDist < 0 || d < bestDist {
			best, bestDist = k, d
		}
	}
	return best
}

// distance is the optimal string alignment distance in bytes: insertions, deletions, substitutions, and swaps of neighbours
// (the commonest slip of the fingers) cost one each.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
