package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// documents contains the man pages and completion scripts.
type documents struct {
	man, completions []file
}

// manuals contains the manuals in Markdown from which man pages are made.
var manuals = []struct{ source, program, section string }{
	{"rules/README.md", Rules, "1"},
	{"install/cmd/kubectl-sluice/README.md", Client, "1"},
	{"plugin/README.md", Plugin, "8"},
	{"install/README.md", Agent, "8"},
}

// completionNames maps shells to the file names under which they load a completion script for
// rules.
var completionNames = map[string]string{
	"bash": "rules.bash", "fish": "rules.fish", "zsh": "_rules",
}

// generateDocuments generates the man pages and completion scripts.
func (r *Release) generateDocuments(ctx context.Context) (documents, error) {
	var d documents
	for _, m := range manuals {
		text, err := os.ReadFile(filepath.Join(r.Source, m.source))
		if err != nil {
			return d, err
		}
		d.man = append(d.man, file{
			m.program + "." + m.section, 0o644, manPage(m.program, m.section, r, string(text)),
		})
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		script, err := r.runOutput(ctx, Rules, "completion", shell)
		if err != nil {
			return d, err
		}
		d.completions = append(d.completions, file{completionNames[shell], 0o644, script})
	}
	return d, nil
}

// manPage converts a manual page from Markdown. The title of the page replaces the heading of the
// document, and the other headings move up one level.
func manPage(program, section string, r *Release, markdown string) []byte {
	title := fmt.Sprintf("%% %s %s %q %q %q\n\n", strings.ToUpper(program), section,
		r.Time.UTC().Format("January 2006"),
		"Sluice "+r.versionNumber(), "Sluice manual")
	var body strings.Builder
	hasTitle := false
	// The text before, between and after blocks of code alternates with the blocks.
	for i, part := range strings.Split("\n"+markdown, "\n```") {
		if isCode := i%2 == 1; isCode {
			body.WriteString("\n```" + part + "\n```")
			continue
		}
		part = link.ReplaceAllStringFunc(part, withoutTarget)
		for line := range strings.Lines(part) {
			if !hasTitle && strings.HasPrefix(line, "# ") {
				hasTitle = true
				continue
			}
			body.WriteString(strings.TrimPrefix(line, "#"))
		}
	}
	return md2man.Render([]byte(title + body.String()))
}

// link matches a Markdown link.
var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

// withoutTarget removes the target of a link unless it is an https URL. The other targets are files
// of the checkout and headings, which a man page cannot open.
func withoutTarget(text string) string {
	match := link.FindStringSubmatch(text)
	linkText, target := match[1], match[2]
	if strings.HasPrefix(target, "https:") {
		return text
	}
	return linkText
}

// archiveFiles returns the documents with their paths in an archive.
func (d documents) archiveFiles() []file {
	var files []file
	for _, f := range d.completions {
		files = append(files, file{"completions/" + f.name, f.mode, f.content})
	}
	for _, f := range d.man {
		files = append(files, file{"man/" + f.name, f.mode, f.content})
	}
	return files
}
