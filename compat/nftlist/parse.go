package nftlist

import (
	"bytes"
	"fmt"
	"io"
	"runtime/debug"
)

// maxSize is the maximum size of a listing in bytes. If the Go runtime has a memory limit
// (GOMEMLIMIT), as in the container of the node agent, maxAmplification times the size must be
// below the limit. Reading a text of one million elements takes 270 times its size, and a text of
// typical rules takes 70 times its size.
const (
	maxSize          = 64 << 20
	maxAmplification = 512
)

// Parse parses a listing. A listing that begins with a brace is JSON, and any other listing is
// text. file is the name of the listing in errors. A syntax error is a [*save.SyntaxError]. A
// listing of more than 64 MiB, or of more than 1/512 of the runtime's memory limit, is an error.
func Parse(file string, r io.Reader) (*Listing, error) {
	const unchanged = -1
	limit := min(maxSize, debug.SetMemoryLimit(unchanged)/maxAmplification)
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	switch {
	case int64(len(content)) <= limit:
	case limit < maxSize:
		return nil, fmt.Errorf("%s: more than %d KiB, which is the limit with the memory limit"+
			" GOMEMLIMIT: read it on a machine with more memory", file, limit>>10)
	default:
		return nil, fmt.Errorf("%s: more than %d MiB", file, limit>>20)
	}
	in := newReader()
	if bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{")) {
		if err := in.readJSON(file, content); err != nil {
			return nil, err
		}
	} else if err := in.readText(file, string(content)); err != nil {
		return nil, err
	}
	listing, err := in.listing()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return listing, nil
}
