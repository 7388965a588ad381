package save

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A ruleList contains the rules of a chain in blocks. Commands that insert, delete or find a rule
// are therefore fast in a long chain too. The zero value is an empty list.
type ruleList struct {
	blocks []*ruleBlock
	length int
	// queues contains the entries by equalityKey. It is nil until a rule is first deleted by its
	// content.
	queues map[string]*ruleQueue
}

// A ruleBlock is a part of a list. It has 1 to maxBlock rules.
type ruleBlock struct {
	number  int // the index of the block in the list
	entries []*ruleEntry
}

// maxBlock is the maximum number of rules of a block. A list of 260,000 rules (see maxSize)
// then has about as many blocks as a block has rules. The search for a block therefore takes about
// as long as the search within the block.
const maxBlock = 512

// A ruleEntry is a rule and its position.
type ruleEntry struct {
	rule  rules.Rule
	block *ruleBlock
	queue *ruleQueue // the queue that contains the entry, or nil
	index int        // the index of the entry in the queue
}

// insert inserts a rule at the index.
func (l *ruleList) insert(at int, r rules.Rule) {
	if len(l.blocks) == 0 {
		l.blocks = []*ruleBlock{{}}
	}
	b, i := l.find(at)
	e := &ruleEntry{rule: r, block: b}
	b.entries = slices.Insert(b.entries, i, e)
	l.length++
	if len(b.entries) > maxBlock {
		l.split(b)
	}
	if l.queues != nil {
		l.enqueue(e)
	}
}

// find returns the block that contains the index, and the index within the block. If the index is
// the length of the list, find returns the end of the last block.
func (l *ruleList) find(at int) (*ruleBlock, int) {
	last := l.blocks[len(l.blocks)-1]
	if before := l.length - len(last.entries); at >= before {
		return last, at - before
	}
	for _, b := range l.blocks {
		if at < len(b.entries) {
			return b, at
		}
		at -= len(b.entries)
	}
	return last, len(last.entries)
}

// split splits a block into two blocks of equal size. It splits off only the last rule of the last
// block, because most rules are inserted at the end of the list.
func (l *ruleList) split(b *ruleBlock) {
	half := len(b.entries) / 2
	if b.number == len(l.blocks)-1 {
		half = len(b.entries) - 1
	}
	other := &ruleBlock{entries: slices.Clone(b.entries[half:])}
	clear(b.entries[half:])
	b.entries = b.entries[:half]
	for _, e := range other.entries {
		e.block = other
	}
	l.blocks = slices.Insert(l.blocks, b.number+1, other)
	l.renumber()
}

// renumber sets the numbers of the blocks.
func (l *ruleList) renumber() {
	for i, b := range l.blocks {
		b.number = i
	}
}

// delete removes and returns the rule at the index.
func (l *ruleList) delete(at int) rules.Rule {
	b, i := l.find(at)
	e := b.entries[i]
	if e.queue != nil {
		heap.Remove(e.queue, e.index)
	}
	return l.remove(e, i)
}

// remove removes an entry from its block. i is the index of the entry in the block.
func (l *ruleList) remove(e *ruleEntry, i int) rules.Rule {
	b := e.block
	b.entries = slices.Delete(b.entries, i, i+1)
	l.length--
	if len(b.entries) == 0 {
		l.blocks = slices.Delete(l.blocks, b.number, b.number+1)
		l.renumber()
	}
	return e.rule
}

// deleteSame removes and returns the first rule that -D treats as equal to r. It returns false if
// there is none.
func (l *ruleList) deleteSame(r *rules.Rule) (rules.Rule, bool) {
	if l.queues == nil {
		l.queues = map[string]*ruleQueue{}
		for e := range l.each {
			l.enqueue(e)
		}
	}
	queue := l.queues[equalityKey(r)]
	if queue == nil || queue.Len() == 0 {
		return rules.Rule{}, false
	}
	e := heap.Pop(queue).(*ruleEntry)
	return l.remove(e, slices.Index(e.block.entries, e)), true
}

// enqueue adds the entry to the queue of equal rules.
func (l *ruleList) enqueue(e *ruleEntry) {
	key := equalityKey(&e.rule)
	queue := l.queues[key]
	if queue == nil {
		queue = &ruleQueue{}
		l.queues[key] = queue
	}
	e.queue = queue
	heap.Push(queue, e)
}

// equalityKey returns a key that is equal for rules that -D treats as equal: rules with the same
// matches, actions and comment.
func equalityKey(r *rules.Rule) string {
	var b strings.Builder
	b.WriteString(r.Comment)
	b.WriteString("\n")
	b.WriteString(r.String())
	for _, m := range r.Matches {
		b.WriteString(socketlessText(m))
	}
	for _, a := range r.Actions {
		if required, ok := a.(rules.Require); ok {
			b.WriteString(socketlessText(required.Match))
		}
	}
	return b.String()
}

// socketlessText returns the field Socketless of an owner match, which String omits.
func socketlessText(m rules.Match) string {
	if owner, ok := m.(rules.MatchOwner); ok {
		return fmt.Sprintf(" %t", owner.Socketless)
	}
	return ""
}

// each calls do for each entry in order, until do returns false.
func (l *ruleList) each(do func(*ruleEntry) bool) {
	for _, b := range l.blocks {
		for _, e := range b.entries {
			if !do(e) {
				return
			}
		}
	}
}

// take returns the rules, or nil if there are none. The list is empty afterwards. take releases
// each block after it has copied the rules of the block, to limit the memory in use.
func (l *ruleList) take() []rules.Rule {
	if l.length == 0 {
		return nil
	}
	list := make([]rules.Rule, 0, l.length)
	l.queues = nil
	for i, b := range l.blocks {
		for _, e := range b.entries {
			list = append(list, e.rule)
		}
		l.blocks[i] = nil
	}
	*l = ruleList{}
	return list
}

// A ruleQueue is a heap of entries of one list, ordered by position.
type ruleQueue []*ruleEntry

// Len implements heap.Interface.
func (q ruleQueue) Len() int { return len(q) }

// Less reports whether entry i precedes entry j in the list.
func (q ruleQueue) Less(i, j int) bool {
	a, b := q[i].block, q[j].block
	if a != b {
		return a.number < b.number
	}
	return slices.Index(a.entries, q[i]) < slices.Index(a.entries, q[j])
}

// Swap implements heap.Interface.
func (q ruleQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *ruleQueue) Push(x any) {
	e := x.(*ruleEntry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *ruleQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
