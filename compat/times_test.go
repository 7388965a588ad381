package compat_test

import "os"

// times returns the number of repetitions of a test whose result depends on chance: long if
// SLUICE_LONG is set, and otherwise short.
func times(short, long int) int {
	if os.Getenv("SLUICE_LONG") == "1" {
		return long
	}
	return short
}
