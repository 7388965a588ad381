package plugin

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// A logEntry is the log line of a call. It contains names, reasons and numbers. Of the settings of
// a pod, it contains only the invalid ones.
type logEntry struct {
	verb   string
	start  time.Time
	level  zapcore.Level // of the line if the call succeeds
	fields []zap.Field
	add    agent.Add // the report of an ADD, without its result and duration
	// hasDecision is set if the fields contain the decision.
	hasDecision bool
}

// verbAdd is the verb whose calls are reported to the node agent.
const verbAdd = "ADD"

// newLogEntry returns the entry of a call that starts at the time now.
func newLogEntry(verb string, ref source.Ref, args *skel.CmdArgs, now time.Time) logEntry {
	return logEntry{
		verb: verb, start: now, level: zap.InfoLevel,
		add: agent.Add{
			Decision: agent.Undecided, Reason: agent.Undecided, Backend: "none",
			Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		},
		fields: []zap.Field{
			zap.String("pod", ref.Name), zap.String("namespace", ref.Namespace),
			zap.String("uid", ref.UID),
			zap.String("sandbox", args.ContainerID), zap.String("ifname", args.IfName),
		},
	}
}

func (e *logEntry) put(fields ...zap.Field) { e.fields = append(e.fields, fields...) }

// setDecision records the decision in the line and in the report. For a pod that cannot be read,
// the report keeps what setUnreadable has recorded.
func (e *logEntry) setDecision(d decide.Decision) {
	e.put(zap.Stringer("decision", d.Outcome), zap.String("reason", string(d.Reason)),
		zap.String("why", d.Message))
	e.hasDecision = true
	if d.Reason == podUnreadable {
		e.level = zap.ErrorLevel
		return
	}
	e.add.Decision, e.add.Reason = d.Outcome.String(), string(d.Reason)
}

// setUnreadable records in the report that the pod cannot be read.
func (e *logEntry) setUnreadable() {
	e.add.Decision, e.add.Reason = "unreadable", agent.PodUnreadable
}

// addNotes adds the notes, one field per kind, because most readers of a JSON object keep only one
// of several equal keys.
func (e *logEntry) addNotes(notes []decide.Note) {
	messages := map[decide.NoteKind][]string{}
	for _, n := range notes {
		messages[n.Kind] = append(messages[n.Kind], n.Message)
	}
	for _, kind := range slices.Sorted(maps.Keys(messages)) {
		e.put(zap.String(string(kind), strings.Join(messages[kind], "; ")))
		if kind == decide.IPv6Uncaptured {
			e.add.Uncaptured = []string{agent.IPv6}
		}
	}
}

// setApplied records the rules that the backend has installed.
func (e *logEntry) setApplied(r compat.Result) {
	e.add.Backend, e.add.Bytes = string(r.Backend), r.Bytes
	e.put(zap.String("backend", string(r.Backend)), zap.String("outcome", string(r.Outcome)),
		zap.Int("rules", r.Rules), zap.Int("routes", r.Routes),
		zap.Int("transaction_bytes", r.Bytes))
}

// maxFullError is the maximum length of an error's text in a log line, in bytes, so that the node
// agent's socket accepts the line. The text is quoted as JSON twice, which makes it at most seven
// times as long. The remaining three tenths are for the other fields.
const maxFullError = agent.MaxRequest / 10

// addFullError adds the first maxFullError bytes of an error's text, if cniError truncates the text
// for the runtime.
func (e *logEntry) addFullError(err error) {
	if message := err.Error(); len(message) > maxDetails {
		e.put(zap.String("error_full", text.Truncate(message, maxFullError)))
	}
}

// write writes the line. The line of an ADD always contains a decision. If ADD failed before it
// decided, the line contains the decision of the report: undecided or unreadable.
func (e *logEntry) write(logger *zap.Logger, end time.Time, err error) {
	if e.verb == verbAdd && !e.hasDecision {
		e.put(zap.String("decision", e.add.Decision), zap.String("reason", e.add.Reason))
	}
	e.put(zap.Float64("duration_ms", milliseconds(end.Sub(e.start))))
	level := e.level
	if err != nil {
		level = zap.ErrorLevel
		e.put(failureFields(err)...)
	}
	logger.Log(level, e.verb, e.fields...)
}

// report returns the report to the node agent about an ADD that ended at the time end.
func (e *logEntry) report(end time.Time, err error) agent.Add {
	a := e.add
	a.Result, a.Duration = agent.AddSucceeded, max(0, end.Sub(e.start)) // the clock may be set back
	if err != nil {
		a.Result, a.Uncaptured = agent.AddFailed, nil // the pod does not start
	}
	return a
}

// failureFields returns the fields for the error of a call.
func failureFields(err error) []zap.Field {
	var f *types.Error
	if !errors.As(err, &f) {
		return []zap.Field{zap.Error(err)}
	}
	return []zap.Field{
		zap.Uint("code", f.Code), zap.String("error", f.Msg), zap.String("details", f.Details),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
