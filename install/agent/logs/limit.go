package logs

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// window is the period in which lines are counted.
	window = 10 * time.Second
	// maxPerMessage and maxTotal limit the lines that are logged in a window: lines with the same
	// message and level, and all lines.
	maxPerMessage = 100
	maxTotal      = 1000
)

// A limit counts lines. It is safe for concurrent use.
type limit struct {
	// onSuppressed is called for each line that is not logged.
	onSuppressed func()

	mu     sync.Mutex
	begin  time.Time // of the window
	total  int
	counts map[message]int
	// suppressed contains the number of suppressed lines of a message since it was last logged.
	suppressed map[message]int
}

// A message is the key by which lines are counted. With few exceptions the text of a message is
// fixed, and variables are fields.
type message struct {
	level zapcore.Level
	text  string
}

// count counts a line, and reports whether it may be logged and how many lines of the same message
// were suppressed before it.
func (l *limit) count(e zapcore.Entry) (before int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := e.Time.Sub(l.begin); l.counts == nil || age >= window || age < 0 {
		l.begin, l.total, l.counts = e.Time, 0, map[message]int{}
		if len(l.suppressed) > maxTotal {
			l.suppressed = nil
		}
	}
	m := message{e.Level, e.Message}
	if l.counts[m] >= maxPerMessage || l.total >= maxTotal {
		if l.suppressed == nil {
			l.suppressed = map[message]int{}
		}
		l.suppressed[m]++
		return 0, false
	}
	l.counts[m]++
	l.total++
	before = l.suppressed[m]
	delete(l.suppressed, m)
	return before, true
}

// limited is a core that suppresses lines beyond a limit.
type limited struct {
	zapcore.Core
	limit *limit
}

// With implements [zapcore.Core].
func (c *limited) With(fields []zapcore.Field) zapcore.Core {
	return &limited{c.Core.With(fields), c.limit}
}

// Check implements [zapcore.Core].
func (c *limited) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c *limited) Write(e zapcore.Entry, fields []zapcore.Field) error {
	before, ok := c.limit.count(e)
	if !ok {
		c.limit.onSuppressed()
		return nil
	}
	if before > 0 {
		fields = append(fields[:len(fields):len(fields)], zap.Int("suppressed", before))
	}
	return c.Core.Write(e, fields)
}
