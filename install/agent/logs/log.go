// Package logs provides the agent's log. Messages of libraries are written in the same format.
// Messages that are repeated too often are suppressed and counted. The agent's latest warnings and
// errors are kept in memory for the command "rules status".
package logs

import (
	"io"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// A Log is the agent's log. Use [New].
type Log struct {
	*zap.Logger
	// Level is the log level. It can be changed.
	Level zap.AtomicLevel

	onSuppressed atomic.Pointer[func()]
	recent       *recent
}

// New returns a log with a level, in JSON or in a readable format.
func New(level string, inJSON bool, w io.Writer) (*Log, error) {
	parsed, err := options.ParseLevel(level)
	if err != nil {
		return nil, err
	}
	l := &Log{Level: zap.NewAtomicLevelAt(zapcore.Level(parsed)), recent: new(recent)}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime, config.EncodeDuration = zapcore.ISO8601TimeEncoder,
		zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if inJSON {
		encoder = zapcore.NewJSONEncoder(config)
	}
	output := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), l.Level)
	limit := &limit{onSuppressed: func() {
		if callback := l.onSuppressed.Load(); callback != nil {
			(*callback)()
		}
	}}
	l.Logger = zap.New(zapcore.NewTee(&limited{output, limit}, &recentCore{recent: l.recent}))
	return l, nil
}

// OnSuppressed sets a function that is called for each suppressed line.
func (l *Log) OnSuppressed(callback func()) { l.onSuppressed.Store(&callback) }

// Recent returns the latest warnings and errors of the agent itself, the last one first,
// independently of the log level.
func (l *Log) Recent() []Line { return l.recent.lines() }

// A Line is a logged warning or error.
type Line struct {
	// First and Last are the times of the first and the last occurrence.
	First, Last time.Time
	// Count is the number of occurrences.
	Count   int
	Level   string
	Message string
	// Error is the error of the last occurrence; empty if there was none.
	Error string
}
