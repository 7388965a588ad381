package diff

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// A Budget limits the work on one request. The zero value means [DefaultBudget].
type Budget struct {
	// Time is the maximum processor time; 0 means no limit. An interruption of the process, because
	// the node is busy or its control group is throttled, counts as at most two milliseconds.
	Time time.Duration
	// Memory is the maximum memory in bytes, including garbage; 0 means no limit.
	Memory int64
	// begin is the time when the work began; zero if the work begins with the request.
	begin time.Time
	// spent is the time that the requests with this budget have used; nil for a single request.
	spent *atomic.Int64
}

// DefaultBudget is a hundred times the budget that the rules of known nodes need.
var DefaultBudget = Budget{Time: 10 * time.Second, Memory: 512 << 20}

// AgentBudget is for requests of an agent about many pods, whose owners may create expensive rules.
// With the race detector its time is longer.
var AgentBudget = Budget{Time: slowdown * 50 * time.Millisecond, Memory: 16 << 20}

// AgentRetryBudget is for the request after one that has exceeded AgentBudget. The rules of
// fail2ban, CrowdSec, Tailscale and wg-quick need less memory.
var AgentRetryBudget = Budget{Time: 10 * AgentBudget.Time, Memory: 2 * AgentBudget.Memory}

// From returns a budget that several requests share, for work that began at the given time. The
// time before the first request counts in full; the time between the requests does not count.
func (b Budget) From(begin time.Time) Budget {
	b = cmp.Or(b, DefaultBudget)
	b.begin, b.spent = begin, new(atomic.Int64)
	return b
}

// exhausted is the value of the panic that ends a request when its budget is used up.
type exhausted struct{ limit string }

// A meter counts the work on a request: the steps of all loops, and the bytes of all tables, that
// grow with the input.
type meter struct {
	budget      Budget
	memory      int64
	stepsLeft   int // until the next reading of the clock
	now         func() time.Time
	lastReading time.Time // the time at the last reading
}

// stepsPerReading is the number of steps between two readings of the clock. They take at most a
// millisecond.
const stepsPerReading = 1 << 12

// maxPerReading is the maximum time that counts between two readings of the clock. A longer time
// means that the process did not run.
const maxPerReading = 2 * time.Millisecond

// textSteps is the number of steps that count for writing the text of a list element.
const textSteps = 16

// memoryRatio is the ratio of Budget.Memory to the memory that may be in use. The rest is for
// garbage: the garbage collector runs when there is as much garbage as memory in use.
const memoryRatio = 2

// The approximate sizes of an entry of a map in bytes: entrySize if the key is small, and
// textEntrySize if the key is a text, or if a list contains the key too.
const (
	entrySize     = 64
	textEntrySize = 128
)

// newMeter returns the meter of a request.
func newMeter(b Budget) *meter {
	b = cmp.Or(b, DefaultBudget)
	m := &meter{budget: b, stepsLeft: stepsPerReading, now: time.Now, lastReading: time.Now()}
	if b.spent == nil {
		m.budget.spent = new(atomic.Int64)
	}
	if !b.begin.IsZero() {
		// Only the first request with the budget counts the time before it.
		m.budget.spent.CompareAndSwap(0, int64(m.lastReading.Sub(b.begin)))
	}
	return m
}

// divideTime divides the time that is left by a number.
func (m *meter) divideTime(by int64) {
	if left := int64(m.budget.Time) - m.budget.spent.Load(); m.budget.Time > 0 && left > 0 {
		m.budget.Time -= time.Duration(left - left/by)
	}
}

// step counts a step, an operation of constant cost.
func (m *meter) step() {
	if m.stepsLeft--; m.stepsLeft <= 0 {
		m.checkTime()
	}
}

// charge counts a number of steps.
func (m *meter) charge(steps int) {
	if m.stepsLeft -= steps; m.stepsLeft <= 0 {
		m.checkTime()
	}
}

// checkTime ends the request if its time is used up.
func (m *meter) checkTime() {
	m.stepsLeft = stepsPerReading
	now := m.now()
	spent := m.budget.spent.Add(int64(min(now.Sub(m.lastReading), maxPerReading)))
	m.lastReading = now
	if limit := m.budget.Time; limit > 0 && time.Duration(spent) > limit {
		m.exhaust(fmt.Sprintf("more than %s of work", limit))
	}
}

// alloc counts allocated bytes.
func (m *meter) alloc(bytes int64) {
	m.memory += bytes
	if limit := m.budget.Memory; limit > 0 && m.memory > limit/memoryRatio {
		m.exhaust(fmt.Sprintf("more than half of %d MB of memory", limit>>20)) // 1/memoryRatio
	}
}

// release counts freed bytes.
func (m *meter) release(bytes int64) { m.memory -= bytes }

// exhaust ends the request because of a limit.
func (m *meter) exhaust(limit string) { panic(exhausted{limit}) }

// runLimited runs do. If do exhausts its budget, runLimited returns the limit that was reached,
// otherwise an empty string.
func runLimited(do func()) (limit string) {
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
