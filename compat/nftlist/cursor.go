package nftlist

// A cursor reads the tokens of a statement. If it finds other tokens than a method expects, it
// fails: it drops the remaining tokens, so that later reads fail too. The functions that parse
// statements and expressions therefore need not check for errors, and their results are valid only
// if the cursor has not failed.
type cursor struct {
	tokens []token // that are not yet read
	failed bool
}

func (c *cursor) fail() { *c = cursor{failed: true} }

// require fails unless the condition holds.
func (c *cursor) require(condition bool) {
	if !condition {
		c.fail()
	}
}

// peek returns the token after i other tokens, without reading it. If there is no such token, it
// returns an empty token, which is not a word.
func (c *cursor) peek(i int) token {
	if i < len(c.tokens) {
		return c.tokens[i]
	}
	return token{}
}

// skip reads count tokens, or all tokens if there are fewer.
func (c *cursor) skip(count int) { c.tokens = c.tokens[min(count, len(c.tokens)):] }

// next reads a token of any kind.
func (c *cursor) next() token {
	c.require(len(c.tokens) > 0)
	t := c.peek(0)
	c.skip(1)
	return t
}

// word reads a word.
func (c *cursor) word() token {
	c.require(c.peek(0).kind == word)
	return c.next()
}

// number reads a number.
func (c *cursor) number() uint64 {
	n, ok := parseNumber(c.next().text)
	c.require(ok)
	return n
}

// expect reads a word or punctuation with the text.
func (c *cursor) expect(text string) { c.require(c.accept(text)) }

// accept reads the next token if it is a word or punctuation with one of the texts. It reports
// whether it has read the token.
func (c *cursor) accept(texts ...string) bool { return c.acceptBefore(0, texts...) }

// acceptBefore is like accept, but reads the token only if at least count tokens follow it.
func (c *cursor) acceptBefore(count int, texts ...string) bool {
	isAccepted := len(c.tokens) > count && c.tokens[0].is(texts...)
	if isAccepted {
		c.skip(1)
	}
	return isAccepted
}
