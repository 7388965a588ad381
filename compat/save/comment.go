package save

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// matchComment parses the match comment and records the comment. It returns no match.
func (r *moduleReader) matchComment() []rules.Match {
	if o := r.requiredOption("--comment"); o != nil {
		r.rejectNegation(o.flag, o.not)
		r.comment = append(r.comment, o.values[0].text)
	}
	return nil
}

// maxComment is the maximum length of a comment in bytes (XT_MAX_COMMENT_LEN of
// linux/netfilter/xt_comment.h without the terminating zero).
const maxComment = 255

// addComment writes the match comment.
func (p *rulePrinter) addComment(text string) error {
	if text == "" {
		return nil
	}
	if len(text) > maxComment || slices.ContainsFunc([]byte(text), func(c byte) bool {
		return c < ' ' || c == 0x7f
	}) {
		return fmt.Errorf("comment %q: want at most %d bytes without control characters", text,
			maxComment)
	}
	p.add("-m", "comment", "--comment", quote(text))
	return nil
}

// quote quotes a text so that iptables-restore parses it as one word.
func quote(text string) string {
	b := []byte{'"'}
	for _, c := range []byte(text) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}
