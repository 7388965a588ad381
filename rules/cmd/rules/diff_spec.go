package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mattn/go-shellwords"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// A spec is the source of a side's ruleset.
type spec struct {
	kind specKind
	// paths contains the files of IPv4 and IPv6, or one file, or a namespace. An empty namespace
	// means the namespace that the flags name.
	paths      [2]string
	origin     compat.Origin // of kindNamespace: the rules to read
	parameters *parameters   // of kindFlags
}

// A specKind is the kind of a source.
type specKind uint8

const (
	kindFlags specKind = iota
	kindSave
	kindLog
	kindNamespace
	kindNFT    // output of nft list ruleset, as text or as JSON
	kindLogged // the configuration in the other side's log
)

// specForms describes the values of --left and --right in errors.
const specForms = `want save:V4[,V6], nft:FILE, log:FILE, netns:PATH[:nft|legacy|iptables-nft] ` +
	`or flags:"FLAG..."`

// parseSpec parses the value of --left or --right.
func parseSpec(n params.Names, text string) (spec, error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok || rest == "" {
		return spec{}, fmt.Errorf("%q is not a side: %s", text, specForms)
	}
	switch kind {
	case "save":
		v4, v6, _ := strings.Cut(rest, ",")
		if v4 == "" && v6 == "" || strings.Contains(v6, ",") {
			return spec{}, fmt.Errorf("%q does not name one or two files: want save:V4[,V6]", text)
		}
		return spec{kind: kindSave, paths: [2]string{v4, v6}}, nil
	case "log":
		return spec{kind: kindLog, paths: [2]string{rest}}, nil
	case "nft":
		return spec{kind: kindNFT, paths: [2]string{rest}}, nil
	case "netns":
		return parseNamespaceSpec(rest)
	case "flags":
		p, err := parseFlagsSpec(n, rest)
		return spec{kind: kindFlags, parameters: p}, err
	}
	return spec{}, fmt.Errorf("%q: there is no side %q: %s", text, kind, specForms)
}

// parseNamespaceSpec parses PATH[:ORIGIN]. A colon that is followed by a slash is part of the path.
func parseNamespaceSpec(text string) (spec, error) {
	path, origin := text, compat.OriginAll
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.Contains(text[i:], "/") {
		path, origin = text[:i], compat.Origin(text[i+1:])
		switch origin {
		case compat.OriginNFT, compat.OriginLegacy, compat.OriginIPTablesNFT:
		default:
			return spec{}, fmt.Errorf(
				"%q is not a part of a namespace's rules: want nft, legacy or iptables-nft",
				text[i+1:])
		}
	}
	if path == "" {
		return spec{}, errors.New("the path of the namespace is empty")
	}
	return spec{kind: kindNamespace, paths: [2]string{path}, origin: origin}, nil
}

// parseFlagsSpec splits the text into words as a shell does, and parses them as flags. It ignores
// the environment, so that a SPEC has the same meaning everywhere.
func parseFlagsSpec(n params.Names, text string) (*parameters, error) {
	// Quotes around the whole text are part of the SPEC, not of a flag.
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' &&
		strings.Count(text, `"`) == 2 {
		text = text[1 : len(text)-1]
	}
	words, err := shellwords.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be split into flags: %w", text, err)
	}
	in := &inputs{sections: captureSections, ignoredSections: actionSections}
	in.load()
	rest, err := in.parseFlags("rules diff", words)
	if err != nil {
		return nil, err
	}
	noVariables := &system{
		variable: func(string) (string, bool) { return "", false },
		users:    n.Users, groups: n.Groups,
	}
	p, err := in.parse(noVariables, rest)
	if err != nil {
		return nil, err
	}
	p.sideName = "command-line flags " + text
	return p, nil
}

// namesNamespace reports whether a flag or a variable names a namespace.
func (p *parameters) namesNamespace() bool {
	return p.netnsPath != "" || p.networkNamespace != "" || p.pid != 0
}

// isFile reports whether the source is a file or standard input.
func (s spec) isFile() bool { return s.kind == kindSave || s.kind == kindLog || s.kind == kindNFT }

// check returns the errors of the files, or of the namespace, that are known before they are opened.
func (s spec) check() error {
	var faults []error
	for _, path := range s.paths {
		switch {
		case path == "":
		case s.isFile():
			faults = append(faults, checkFile(path))
		case s.kind == kindNamespace:
			faults = append(faults, (&parameters{netnsPath: path}).checkNamespace())
		}
	}
	return errors.Join(faults...)
}

// countStdin returns the number of files that are standard input.
func (s spec) countStdin() int {
	n := 0
	for _, path := range s.paths {
		if path == "-" && s.kind != kindNamespace {
			n++
		}
	}
	return n
}

// family returns the family of a side's rules, Inet for both.
func (s spec) family() rules.Family {
	switch {
	case s.kind == kindSave && s.paths[1] == "":
		return rules.IPv4
	case s.kind == kindSave && s.paths[0] == "":
		return rules.IPv6
	}
	return rules.Inet
}
