package bench

import (
	"cmp"
	_ "embed" // for the notes
	"slices"

	"github.com/sluice-mesh/sluice/e2e/embedded"
)

//go:embed notes.yaml
var notesYAML []byte

// Rows returns the rows that need no API server.
func Rows(t Tools) []Row {
	rows := slices.Concat(inProcessRows(), processRows(t), reapplyRows(t), changeRows(t),
		restartRows(), connectRows(t), packetRows(t), traceRows(t), diffRows(t))
	notes := embedded.Decode[map[string]string](notesYAML)
	for i := range rows {
		rows[i].Note = cmp.Or(rows[i].Note, notes[rows[i].ID])
	}
	return rows
}
