package main

import (
	"os"
	"strings"
	"unicode"
)

// maxListFile is the maximum size of a file of list elements in bytes: much more than a list of all
// prefixes that the kernel can load.
const maxListFile = 64 << 20

// expandLists replaces each element @FILE of a list by the elements in the file. A repeatable
// parameter gets each element as a separate value.
func (p *parameter) expandLists(texts []string) ([]string, error) {
	if !p.list && !p.repeat {
		return texts, nil
	}
	var expanded []string
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
			elements, err := readList(path)
			if err != nil {
				return nil, err
			}
			expanded = append(expanded, elements...)
		}
	}
	if p.list && len(expanded) != 1 {
		return []string{strings.Join(expanded, ",")}, nil
	}
	return expanded, nil
}

// readList reads elements separated by commas, blanks and line ends. The rest of a line after # is
// a comment.
func readList(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := readAtMost(file, path, maxListFile)
	if err != nil {
		return nil, err
	}
	var elements []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		isSeparator := func(c rune) bool { return c == ',' || unicode.IsSpace(c) }
		elements = append(elements, strings.FieldsFunc(line, isSeparator)...)
	}
	return elements, nil
}
