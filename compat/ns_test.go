package compat_test

import "os"

// times returns how often a test repeats what depends on chance.
func times(short, inLong int) int {
	if os.Getenv("SLUICE_LONG") == "1" {
		return inLong
	}
	return short
}
