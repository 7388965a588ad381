//go:build !race

package budgettest

// RaceDetector is false: see race_on.go.
const RaceDetector = false
