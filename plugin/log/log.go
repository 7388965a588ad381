package log

import (
	"io"

	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// Open returns what a logger of zap writes to, and a function that closes its file. It is safe for
// concurrent use. The file is opened when something is logged; whether it cannot be is wrapped by
// the error of writing. Each of the others gets every line too, by one call of Write.
//
// This package makes no logger, because zap's logger links net/http, which the readers of a
// configuration need not have.
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
