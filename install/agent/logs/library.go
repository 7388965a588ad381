package logs

import (
	"bytes"
	"fmt"
	"io"
	"log"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// RedirectGlobalLoggers redirects klog, which client-go uses, and the standard library's logger,
// which net/http uses, to this log. Messages of client-go get the level debug, because the agent
// itself logs failures.
func (l *Log) RedirectGlobalLoggers() {
	klog.SetLoggerWithOptions(logr.New(&sink{l.Named("client-go")}), klog.ContextualLogger(true))
	// The agent has no klog flags, and klog's default is to write to standard error too.
	klog.LogToStderr(false)
	log.SetFlags(0)
	log.SetOutput(l.StandardWriter("standard"))
}

// Standard returns a logger of the standard library's type for a library. Its messages become
// warnings.
func (l *Log) Standard(library string) *log.Logger {
	return log.New(l.StandardWriter(library), "", 0)
}

// StandardWriter returns a writer for messages of a library, which become warnings. Their text is a
// field of one fixed message, so that the limit for repeated messages applies to all of them.
func (l *Log) StandardWriter(library string) io.Writer { return writer{l.Named(library)} }

type writer struct{ logger *zap.Logger }

// Write implements [io.Writer].
func (w writer) Write(line []byte) (int, error) {
	w.logger.Warn("message of a library", zap.ByteString("line", bytes.TrimRight(line, "\n")))
	return len(line), nil
}

// A sink receives messages of libraries that use logr.
type sink struct{ logger *zap.Logger }

var _ logr.LogSink = (*sink)(nil)

// Init implements [logr.LogSink].
func (s *sink) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink]. Levels above 0 are for developers of the library.
func (s *sink) Enabled(level int) bool {
	return level == 0 && s.logger.Core().Enabled(zapcore.DebugLevel)
}

// Info implements [logr.LogSink].
func (s *sink) Info(_ int, text string, pairs ...any) {
	s.logger.Debug("message of a library", append(fieldsOf(pairs), zap.String("line", text))...)
}

// Error implements [logr.LogSink].
func (s *sink) Error(err error, text string, pairs ...any) {
	s.logger.Debug("message of a library",
		append(fieldsOf(pairs), zap.String("line", text), zap.Error(err))...)
}

// WithValues implements [logr.LogSink].
func (s *sink) WithValues(pairs ...any) logr.LogSink {
	return &sink{s.logger.With(fieldsOf(pairs)...)}
}

// WithName implements [logr.LogSink].
func (s *sink) WithName(name string) logr.LogSink { return &sink{s.logger.Named(name)} }

// fieldsOf converts alternating keys and values to fields. Values are converted to text, because
// encoding a value of arbitrary type can fail.
func fieldsOf(pairs []any) []zapcore.Field {
	fields := make([]zapcore.Field, 0, len(pairs)/2+2)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, zap.String(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])))
	}
	return fields
}
