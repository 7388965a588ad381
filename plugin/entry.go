package plugin

import (
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An entry is the log line of a call. It has names, words and numbers, and of a pod nothing else but its wrong settings.
type entry struct {
	verb   string
	start  time.Time
	level  zapcore.Level // of a call that succeeds
	fields []zap.Field
}

func newEntry(verb string, ref source.Ref, args *skel.CmdArgs, now time.Time) entry {
	return entry{
		verb: verb, start: now, level: zap.InfoLevel,
		fields: []zap.Field{
			zap.String("pod", ref.Name), zap.String("namespace", ref.Namespace), zap.String("uid", ref.UID),
			zap.String("sandbox", args.ContainerID), zap.String("ifname", args.IfName),
		},
	}
}

func (e *entry) add(fields ...zap.Field) { e.fields = append(e.fields, fields...) }

func (e *entry) decided(d decide.Decision) {
	e.add(zap.Stringer("decision", d.Outcome), zap.String("reason", string(d.Reason)), zap.String("why", d.Sentence))
	if d.Reason == podUnreadable {
		e.level = zap.ErrorLevel
	}
}

func (e *entry) notes(notes []decide.Note) {
	for _, n := range notes {
		e.add(zap.String(string(n.Kind), n.Sentence))
	}
}

func (e *entry) applied(r compat.Result) {
	e.add(zap.String("backend", string(r.Engine)), zap.String("rules_were", string(r.Outcome)),
		zap.Int("rules", r.Rules), zap.Int("routes", r.Routes), zap.Int("transaction_bytes", r.Bytes))
}

// unabridged adds an error of which the runtime gets no more than the beginning: the list of all that is wrong.
func (e *entry) unabridged(err error) {
	if len(err.Error()) > maxDetails {
		e.add(zap.NamedError("unabridged", err))
	}
}

// write writes the line.
func (e *entry) write(logger *zap.Logger, end time.Time, err error) {
	e.add(zap.Float64("duration_ms", milliseconds(end.Sub(e.start))))
	level := e.level
	if err != nil {
		level = zap.ErrorLevel
		e.add(failureFields(err)...)
	}
	logger.Log(level, e.verb, e.fields...)
}

func failureFields(err error) []zap.Field {
	var f *types.Error
	if !errors.As(err, &f) {
		return []zap.Field{zap.Error(err)}
	}
	return []zap.Field{zap.Uint("code", f.Code), zap.String("error", f.Msg), zap.String("details", f.Details)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
