package log

import (
	"io"

	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// Open returns a core for a zap logger, and a function that closes the log file. The core is safe
// for concurrent use. It writes each line to stderr, the log file and the other writers, each with
// one call of Write. The file is opened when the first line is written; if it cannot be opened,
// writing returns the error.
//
// Open returns a core instead of a logger, because package zap imports net/http, which makes a
// program start later.
func Open(o options.Log, stderr io.Writer, others ...io.Writer) (zapcore.Core, func()) {
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
	// One core for all writers: several cores would each encode the line.
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.NewMultiWriteSyncer(writers...)),
		zapcore.Level(o.Level))
	return core, func() { _ = f.Close() }
}
