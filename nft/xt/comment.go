package xt

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// commentSize is XT_MAX_COMMENT_LEN, including the terminating zero.
const commentSize = 256

// addComment appends the text of struct xt_comment_info to the comment of the rule.
func addComment(r *rules.Rule, info []byte) {
	text := textBeforeZero(info[:min(len(info), commentSize)])
	if r.Comment != "" && text != "" {
		r.Comment += " "
	}
	r.Comment += text
}

// EncodeComment encodes a comment as the match "comment", which matches every packet.
func EncodeComment(text string) (Extension, error) {
	if len(text) >= commentSize || strings.ContainsRune(text, 0) {
		return Extension{}, fmt.Errorf("comment %q: must have at most %d bytes and no zero byte",
			text, commentSize-1)
	}
	return Extension{
		Name: "comment", Data: append([]byte(text), make([]byte, commentSize-len(text))...),
	}, nil
}
