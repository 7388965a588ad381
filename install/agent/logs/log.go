// Package logs makes the agent's log: lines of one format, of which a message that is repeated too
// often is suppressed and counted, those of libraries included, and the latest warnings and errors
// kept for rules status.
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
	// Level sets what is logged. It can be changed.
	Level zap.AtomicLevel

	suppressed atomic.Pointer[func()]
	recent     *recent
}

// New returns a log of a level, in lines of JSON or for people to read.
func New(level string, inJSON bool, w io.Writer) (*Log, error) {
	parsed, err := options.ParseLevel(level)
	if err != nil {
		return nil, err
	}
	l := &Log{Level: zap.NewAtomicLevelAt(zapcore.Level(parsed)), recent: new(recent)}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime, config.EncodeDuration = zapcore.ISO8601TimeEncoder, zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if inJSON {
		encoder = zapcore.NewJSONEncoder(config)
	}
	written := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), l.Level)
	limit := &limit{suppressed: func() {
		if tell := l.suppressed.Load(); tell != nil {
			(*tell)()
		}
	}}
	l.Logger = zap.New(zapcore.NewTee(&limited{written, limit}, &recentCore{recent: l.recent}))
	return l, nil
}

// OnSuppressed makes tell be called with each line that is suppressed.
func (l *Log) OnSuppressed(tell func()) { l.suppressed.Store(&tell) }

// Recent returns the latest warnings and errors, the last one first, whatever the level of the log.
func (l *Log) Recent() []Line { return l.recent.lines() }

// A Line is a warning or an error that was logged.
type Line struct {
	// First and Last are when the message was logged for the first time and for the last, Count is
	// how often.
	First, Last time.Time
	Count       int
	Level       string
	Message     string
	// Error is the error of the last time; empty if there was none.
	Error string
}
