package xt

import (
	"bytes"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// commentSize is XT_MAX_COMMENT_LEN, with a final zero.
const commentSize = 256

// addComment reads struct xt_comment_info.
func addComment(r *rules.Rule, info []byte) {
	text, _, _ := bytes.Cut(info[:min(len(info), commentSize)], []byte{0})
	if r.Comment != "" && len(text) > 0 {
		r.Comment += " "
	}
	r.Comment += string(text)
}

// EncodeComment writes a comment as the match that it is for xtables: one that every packet
// fulfils.
func EncodeComment(text string) (Extension, error) {
	if len(text) >= commentSize || bytes.ContainsRune([]byte(text), 0) {
		return Extension{}, fmt.Errorf("comment %q: it has a zero byte or more than %d bytes", text, commentSize-1)
	}
	return Extension{Name: "comment", Data: append([]byte(text), make([]byte, commentSize-len(text))...)}, nil
}
