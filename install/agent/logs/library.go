package logs

import (
	"fmt"
	"log"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// TakeOver redirects the logs of libraries to this log: of those that use klog, such as client-go,
// and of those that use the standard library's logger, such as net/http. Messages of client-go have
// the level debug, because the agent itself logs failures.
func (l *Log) TakeOver() {
	klog.SetLoggerWithOptions(logr.New(&sink{l.Named("client-go")}), klog.ContextualLogger(true))
	// The agent has no klog flags, and klog's default is to write to standard error too.
	klog.LogToStderr(false)
	log.SetFlags(0)
	log.SetOutput(l.StandardWriter("standard"))
}

// Standard returns a logger of the standard library for a library. Its messages are warnings.
func (l *Log) Standard(library string) *log.Logger {
	return log.New(l.StandardWriter(library), "", 0)
}

// StandardWriter returns a writer for messages of a library, which become warnings. Their text is a
// field, so that they count as one message.
func (l *Log) StandardWriter(library string) interface{ Write([]byte) (int, error) } {
	return writer{l.Named(library)}
}

type writer struct{ to *zap.Logger }

// Write implements [io.Writer].
func (w writer) Write(line []byte) (int, error) {
	w.to.Warn("the library says", zap.ByteString("line", trimmed(line)))
	return len(line), nil
}

func trimmed(line []byte) []byte {
	for len(line) > 0 && line[len(line)-1] == '\n' {
		line = line[:len(line)-1]
	}
	return line
}

// A sink receives messages of libraries that use logr.
type sink struct{ to *zap.Logger }

var _ logr.LogSink = (*sink)(nil)

// Init implements [logr.LogSink].
func (s *sink) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink]. Levels above 0 are for developers of the library.
func (s *sink) Enabled(level int) bool {
	return level == 0 && s.to.Core().Enabled(zapcore.DebugLevel)
}

// Info implements [logr.LogSink].
func (s *sink) Info(_ int, text string, pairs ...any) {
	s.to.Debug("the library says", append(fieldsOf(pairs), zap.String("line", text))...)
}

// Error implements [logr.LogSink].
func (s *sink) Error(err error, text string, pairs ...any) {
	s.to.Debug("the library says",
		append(fieldsOf(pairs), zap.String("line", text), zap.Error(err))...)
}

// WithValues implements [logr.LogSink].
func (s *sink) WithValues(pairs ...any) logr.LogSink { return &sink{s.to.With(fieldsOf(pairs)...)} }

// WithName implements [logr.LogSink].
func (s *sink) WithName(name string) logr.LogSink { return &sink{s.to.Named(name)} }

// fieldsOf converts keys and values of any type to fields. Values are converted to text, which
// cannot fail.
func fieldsOf(pairs []any) []zapcore.Field {
	fields := make([]zapcore.Field, 0, len(pairs)/2+2)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, zap.String(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])))
	}
	return fields
}
