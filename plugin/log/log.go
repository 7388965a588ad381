// Package log opens the plugin's log: lines of JSON to standard error, to a file that is rotated, and to whoever else wants them.
//
// A plugin runs for milliseconds beside others of its kind: every process appends to the same file, and whoever finds it too big
// rotates it. Nothing about a log ever fails its user: what cannot be written is lost, and the logger's error output says so.
package log

import (
	"fmt"
	"io"
	"strings"

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

// Open returns what a logger of zap writes to, and a function that closes its file. It is safe for concurrent use. The file is opened
// when something is logged; whether it cannot be is in the error of writing. Each of the others gets every line too, by one call of
// Write.
//
// This package makes no logger, since that of zap links net/http, which the readers of a configuration need not have.
func Open(o Options, stderr io.Writer, others ...io.Writer) (zapcore.Core, func()) {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime:  zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel: zapcore.LowercaseLevelEncoder,
	})
	f := &file{options: o}
	writers := []zapcore.WriteSyncer{zapcore.AddSync(stderr)}
	if o.File != "" {
		writers = append(writers, zapcore.AddSync(f))
	}
	for _, w := range others {
		writers = append(writers, zapcore.AddSync(w))
	}
	// One core for all of them: each would encode the line anew.
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.NewMultiWriteSyncer(writers...)), o.Level)
	return core, func() { _ = f.Close() }
}
