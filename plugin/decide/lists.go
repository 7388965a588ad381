package decide

import "github.com/sluice-mesh/sluice/plugin/text"

// maxQuoted is the maximum number of bytes of an invalid value in an error.
const maxQuoted = 64

// quote quotes an untrusted value on one line with limited length.
func quote(value string) string { return text.Quote(value, maxQuoted) }
