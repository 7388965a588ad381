// Package log opens the plugin's log: lines of JSON to standard error and to a file that is rotated.
//
// A plugin runs for milliseconds beside others of its kind: every process appends to the same file, and whoever finds it too big
// rotates it. Nothing about a log ever fails its user: what cannot be written is lost, and standard error says so.
package log

import (
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Options say what is logged, and where to. The zero value logs to standard error only, from info on.
type Options struct {
	// Level is the least level that is logged; [None] logs nothing.
	Level zapcore.Level
	// File is the path of the log file, which is made with mode 0600 if there is none; empty for no file.
	File string
	// MaxMegabytes is the size at which the file is rotated, 0 for never; Backups is how many rotated files are kept, and MaxDays how
	// long, 0 for all and for ever.
	MaxMegabytes, Backups, MaxDays int
}

// None is above all levels.
const None = zapcore.FatalLevel + 1

// levels are the words for levels. Those of Istio are among them.
var levels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel,
	"info":  zapcore.InfoLevel,
	"warn":  zapcore.WarnLevel,
	"error": zapcore.ErrorLevel,
	"fatal": zapcore.FatalLevel,
	"none":  None,
}

// LevelWant is what [ParseLevel] reads.
const LevelWant = "debug, info, warn, error, fatal or none"

// ParseLevel reads a level, in capital or small letters.
func ParseLevel(text string) (zapcore.Level, error) {
	level, ok := levels[strings.ToLower(text)]
	if !ok {
		return 0, fmt.Errorf("%q is not a level: want %s", text, LevelWant)
	}
	return level, nil
}

// Open opens the log, and returns a function that closes its file. The log is safe for concurrent use. The file is opened when
// something is logged; if it cannot be, stderr is told so.
func Open(o Options, stderr io.Writer) (*zap.Logger, func()) {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime:  zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel: zapcore.LowercaseLevelEncoder,
	})
	errors := zapcore.Lock(zapcore.AddSync(stderr))
	core := zapcore.NewCore(encoder, errors, o.Level)
	f := &file{options: o}
	if o.File != "" {
		core = zapcore.NewTee(core, zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(f)), o.Level))
	}
	return zap.New(core, zap.ErrorOutput(errors)), func() { _ = f.Close() }
}
