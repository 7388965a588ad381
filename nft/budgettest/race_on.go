//go:build race

package budgettest

// RaceDetector reports whether the program contains the race detector, which needs several times
// the memory of the program.
const RaceDetector = true
