package text

// Distance returns how many bytes must be inserted, removed or replaced to make b of a, up to most,
// and a larger number if they are more.
func Distance(a, b string, most int) int {
	if diff := len(a) - len(b); diff > most || -diff > most {
		return most + 1
	}
	row := make([]int, len(b)+1) // of distances between a prefix of a and each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
