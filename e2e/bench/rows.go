package bench

import (
	"cmp"
	_ "embed" // for the notes
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed notes.yaml
var notesYAML []byte

// Rows returns the rows that need no API server.
func Rows(t Tools) []Row {
	rows := slices.Concat(inProcessRows(), processRows(t), reapplyRows(t), changeRows(t),
		restartRows(), connectRows(t), packetRows(t), traceRows(t), diffRows(t))
	var notes map[string]string
	if err := yaml.UnmarshalStrict(notesYAML, &notes); err != nil {
		panic("notes.yaml: " + err.Error())
	}
	for i := range rows {
		rows[i].Note = cmp.Or(rows[i].Note, notes[rows[i].ID])
	}
	return rows
}
