package nftlist

import (
	"bytes"
	"fmt"
	"io"
)

// maxSize is the maximum size of a listing in bytes.
const maxSize = 256 << 20

// Parse parses a listing. A listing that begins with a brace is JSON, and any other listing is
// text. file is the name of the listing in errors. A syntax error is a
// [*save.SyntaxError].
func Parse(file string, r io.Reader) (*Listing, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSize {
		return nil, fmt.Errorf("%s: more than %d MiB", file, maxSize>>20)
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
