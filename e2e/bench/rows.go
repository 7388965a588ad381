package bench

import "slices"

// Rows returns the rows that need no API server.
func Rows(t Tools) []Row {
	return slices.Concat(inProcessRows(), processRows(t), reapplyRows(t), changeRows(t),
		restartRows(), connectRows(t), packetRows(t), traceRows(t), diffRows(t))
}
