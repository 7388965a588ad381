package main

import (
	"fmt"
	"os"
	"strings"
	"unicode"
)

// maxListFiles is the maximum total size of the files of a list in bytes. 200,000 IPv4 prefixes
// have about 3.6 MB.
const maxListFiles = 4 << 20

// expandLists replaces each element @FILE of a list by the elements in the file. A repeatable
// parameter gets each element as a separate value.
func (p *parameter) expandLists(texts []string) ([]string, error) {
	if !p.list && !p.repeat {
		return texts, nil
	}
	var expanded []string
	size := 0 // of the files that were read
	for _, text := range texts {
		if !strings.Contains(text, "@") {
			expanded = append(expanded, text)
			continue
		}
		for element := range strings.SplitSeq(text, ",") {
			path, isFile := strings.CutPrefix(strings.TrimSpace(element), "@")
			if !isFile {
				expanded = append(expanded, element)
				continue
			}
			elements, length, err := readList(path)
			if err != nil {
				return nil, err
			}
			if size += length; size > maxListFiles {
				return nil, fmt.Errorf("%s: the files of the list have more than %d MiB in total",
					path, maxListFiles>>20)
			}
			expanded = append(expanded, elements...)
		}
	}
	if p.list && len(expanded) != 1 {
		return []string{strings.Join(expanded, ",")}, nil
	}
	return expanded, nil
}

// readList reads elements separated by commas, blanks and line ends, and returns the size of the
// file. The rest of a line after # is a comment.
func readList(path string) (elements []string, size int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	text, err := readAtMost(file, path, maxListFiles)
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		isSeparator := func(c rune) bool { return c == ',' || unicode.IsSpace(c) }
		elements = append(elements, strings.FieldsFunc(line, isSeparator)...)
	}
	return elements, len(text), nil
}
