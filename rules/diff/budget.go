package diff

import (
	"fmt"
	"time"
)

// A Budget bounds the work on one question. The zero value stands for [DefaultBudget].
type Budget struct {
	// Time is how long it may take; 0 stands for no limit.
	Time time.Duration
	// Memory is how many bytes it may take, with the garbage that the collector has not freed yet; 0 stands for no limit.
	Memory int64
	// begin is when the time begins; the zero value stands for the first step.
	begin time.Time
}

// DefaultBudget is enough for the rules of any node that has been seen, by a factor of a hundred.
var DefaultBudget = Budget{Time: 10 * time.Second, Memory: 512 << 20}

// AgentBudget is for a question which an agent asks for each of many pods, whose rules may have been made to be costly.
var AgentBudget = Budget{Time: 50 * time.Millisecond, Memory: 16 << 20}

// From returns the budget for work that began at a time, on several questions or with the reading of what they are about.
func (b Budget) From(begin time.Time) Budget {
	if b == (Budget{}) {
		b = DefaultBudget
	}
	b.begin = begin
	return b
}

// An exhausted is what a panic carries from where the budget ends to where the question was asked.
type exhausted struct{ limit string }

// A meter counts the work on a question. Each loop that grows with the input counts its steps, and each table that grows its bytes.
type meter struct {
	budget   Budget
	memory   int64
	untilNow int // how many steps are left before the time is looked at
	// spent is the limit that was reached, empty if none was.
	spent string
}

// stepsPerLook is how many steps pass between two looks at the clock: a millisecond or less.
const stepsPerLook = 1 << 12

// textSteps is how many steps it takes to write a value of a list.
const textSteps = 16

// liveShare is which part of the memory may be in use at a time: the collector runs when as much again is garbage.
const liveShare = 2

func newMeter(b Budget) *meter {
	if b == (Budget{}) {
		b = DefaultBudget
	}
	if b.begin.IsZero() {
		b.begin = time.Now()
	}
	return &meter{budget: b, untilNow: stepsPerLook}
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
	if limit := m.budget.Time; limit > 0 && time.Since(m.budget.begin) > limit {
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
