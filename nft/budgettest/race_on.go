//go:build race

package budgettest

// RaceDetector reports whether the program contains the race detector, which multiplies the
// time and the memory that the program needs.
const RaceDetector = true
