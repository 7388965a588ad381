package diff

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A Budget bounds the work on one question. The zero value stands for [DefaultBudget].
type Budget struct {
	// Time is how long the work may take on a processor; 0 stands for no limit. A pause in which
	// the process does not run, because the node is busy or its control group is throttled, counts
	// as at most two milliseconds.
	Time time.Duration
	// Memory is how many bytes it may take, with the garbage that the collector has not freed yet;
	// 0 stands for no limit.
	Memory int64
	// begin is when the work has begun, the zero value if with the question.
	begin time.Time
	// spent is the time that the questions of one piece of work have taken, nil for a single
	// question.
	spent *atomic.Int64
}

// DefaultBudget is enough for the rules of any node that has been seen, by a factor of a hundred.
var DefaultBudget = Budget{Time: 10 * time.Second, Memory: 512 << 20}

// AgentBudget is for a question which an agent asks for each of many pods, whose rules may have
// been made to be costly.
var AgentBudget = Budget{Time: 50 * time.Millisecond, Memory: 16 << 20}

// From returns the budget of all questions together that it is passed with, for work that has begun
// at a time. What passes before the first question counts in full, what passes between the
// questions does not count.
func (b Budget) From(begin time.Time) Budget {
	if b == (Budget{}) {
		b = DefaultBudget
	}
	b.begin, b.spent = begin, new(atomic.Int64)
	return b
}

// An exhausted is what a panic carries from where the budget ends to where the question was asked.
type exhausted struct{ limit string }

// A meter counts the work on a question. Each loop that grows with the input counts its steps, and
// each table that grows its bytes.
type meter struct {
	budget   Budget
	memory   int64
	untilNow int // how many steps are left before the time is looked at
	now      func() time.Time
	last     time.Time // when the time was last looked at
	// spent is the limit that was reached, empty if none was.
	spent string
}

// stepsPerLook is how many steps pass between two looks at the clock: a millisecond or less.
const stepsPerLook = 1 << 12

// mostPerLook is how much time counts between two looks. Where more has passed, the process did not
// run meanwhile.
const mostPerLook = 2 * time.Millisecond

// textSteps is how many steps it takes to write a value of a list.
const textSteps = 16

// liveShare is which part of the memory may be in use at a time: the collector runs when as much
// again is garbage.
const liveShare = 2

func newMeter(b Budget) *meter {
	if b == (Budget{}) {
		b = DefaultBudget
	}
	m := &meter{budget: b, untilNow: stepsPerLook, now: time.Now, last: time.Now()}
	if b.spent == nil {
		m.budget.spent = new(atomic.Int64)
	}
	if !b.begin.IsZero() {
		m.budget.spent.CompareAndSwap(0, int64(m.last.Sub(b.begin)))
	}
	return m
}

// work counts a step: an operation of constant cost.
func (m *meter) work() {
	if m.untilNow--; m.untilNow <= 0 {
		m.look()
	}
}

// charge counts so many steps.
func (m *meter) charge(steps int) {
	if m.untilNow -= steps; m.untilNow <= 0 {
		m.look()
	}
}

// look ends the work if its time is over.
func (m *meter) look() {
	m.untilNow = stepsPerLook
	now := m.now()
	spent := m.budget.spent.Add(int64(min(now.Sub(m.last), mostPerLook)))
	m.last = now
	if limit := m.budget.Time; limit > 0 && time.Duration(spent) > limit {
		m.exhaust(fmt.Sprintf("more than %s of work", limit))
	}
}

// take counts bytes that are in use from now on.
func (m *meter) take(bytes int64) {
	m.memory += bytes
	if limit := m.budget.Memory; limit > 0 && m.memory > limit/liveShare {
		m.exhaust(fmt.Sprintf("more than %d MB of memory", limit>>20))
	}
}

// release counts bytes that are not in use any more.
func (m *meter) release(bytes int64) { m.memory -= bytes }

func (m *meter) exhaust(limit string) {
	m.spent = limit
	panic(exhausted{limit})
}

// within runs a function, and returns which limit it has reached, or an empty string.
func within(do func()) (limit string) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exhausted)
			if !ok {
				panic(r)
			}
			limit = e.limit
		}
	}()
	do()
	return ""
}
