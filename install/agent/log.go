package agent

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// NewLog returns a log of a level, which can be changed, in lines of JSON or for people to read.
func NewLog(level string, inJSON bool, w io.Writer) (*zap.Logger, zap.AtomicLevel, error) {
	parsed, err := options.ParseLevel(level)
	if err != nil {
		return nil, zap.AtomicLevel{}, err
	}
	atomic := zap.NewAtomicLevelAt(zapcore.Level(parsed))
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime, config.EncodeDuration = zapcore.ISO8601TimeEncoder, zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if inJSON {
		encoder = zapcore.NewJSONEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), atomic)), atomic, nil
}
