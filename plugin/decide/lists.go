package decide

import "github.com/sluice-mesh/sluice/plugin/text"

// maxQuoted is how many bytes of a wrong value an error shows.
const maxQuoted = 64

// quote writes a value that a stranger has chosen, in bounded length and on one line.
func quote(value string) string { return text.Quote(value, maxQuoted) }
