package log

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// Open returns a logger, and a function that closes the log file. The logger writes each line to
// stderr, the log file and the other writers, with one call of Write for each. It opens the file
// when it writes the first line. It reports errors of the writers on stderr.
func Open(o options.Log, stderr io.Writer, others ...io.Writer) (*zap.Logger, func()) {
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
	logger := zap.New(core, zap.ErrorOutput(zapcore.Lock(zapcore.AddSync(stderr))))
	return logger, func() { _ = f.Close() }
}
