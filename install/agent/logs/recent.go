package logs

import (
	"slices"
	"sync"

	"go.uber.org/zap/zapcore"
)

// maxRecent is the maximum number of kept messages.
const maxRecent = 16

// recent contains the latest warnings and errors, the most recent first. Repetitions of a message
// are one line. It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	kept []Line
}

func (r *recent) lines() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

func (r *recent) add(e zapcore.Entry, errorText string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := Line{First: e.Time, Level: e.Level.String(), Message: e.Message}
	same := func(l Line) bool { return l.Message == line.Message && l.Level == line.Level }
	if at := slices.IndexFunc(r.kept, same); at >= 0 {
		line = r.kept[at]
		r.kept = slices.Delete(r.kept, at, at+1)
	}
	line.Last, line.Error = e.Time, errorText
	line.Count++
	r.kept = slices.Insert(r.kept, 0, line)
	r.kept = r.kept[:min(len(r.kept), maxRecent)]
}

// recentCore is a core that adds warnings and errors of the agent to recent. It ignores the
// messages of libraries, whose loggers have names, because the agent itself logs failures of its
// calls.
type recentCore struct{ recent *recent }

// Enabled implements [zapcore.Core].
func (c *recentCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements [zapcore.Core]. Permanent fields of a logger are ignored.
func (c *recentCore) With([]zapcore.Field) zapcore.Core { return c }

// Check implements [zapcore.Core].
func (c *recentCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && e.LoggerName == "" {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c *recentCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	errorText := ""
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			errorText = err.Error()
		}
	}
	c.recent.add(e, errorText)
	return nil
}

// Sync implements [zapcore.Core].
func (c *recentCore) Sync() error { return nil }
