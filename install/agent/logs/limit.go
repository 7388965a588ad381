package logs

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// window is the period in which lines are counted. At most burst lines of a message and a level
	// are logged in it, and burstOfAll of all.
	window     = 10 * time.Second
	burst      = 100
	burstOfAll = 1000
)

// A limit counts lines. It is safe for concurrent use.
type limit struct {
	// suppressed is called for each line that is not logged.
	suppressed func()

	mu     sync.Mutex
	begin  time.Time // of the window
	all    int
	counts map[message]int
	// kept contains the number of suppressed lines of a message since it was last logged.
	kept map[message]int
}

// A message is the key by which lines are counted. Texts of messages are fixed, with few
// exceptions.
type message struct {
	level zapcore.Level
	text  string
}

// take reports whether a line may be logged, and how many lines of the same message were suppressed
// before it.
func (l *limit) take(e zapcore.Entry) (before int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := e.Time.Sub(l.begin); l.counts == nil || age >= window || age < 0 {
		l.begin, l.all, l.counts = e.Time, 0, map[message]int{}
		if len(l.kept) > burstOfAll {
			l.kept = nil
		}
	}
	m := message{e.Level, e.Message}
	if l.counts[m] >= burst || l.all >= burstOfAll {
		if l.kept == nil {
			l.kept = map[message]int{}
		}
		l.kept[m]++
		return 0, false
	}
	l.counts[m]++
	l.all++
	before = l.kept[m]
	delete(l.kept, m)
	return before, true
}

// limited is a core with a limit.
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
	before, ok := c.limit.take(e)
	if !ok {
		c.limit.suppressed()
		return nil
	}
	if before > 0 {
		fields = append(fields[:len(fields):len(fields)], zap.Int("suppressed", before))
	}
	return c.Core.Write(e, fields)
}
