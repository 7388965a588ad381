package compat_test

import "os"

// times is how often a test repeats what chance decides.
func times(short, inLong int) int {
	if os.Getenv("SLUICE_LONG") == "1" {
		return inLong
	}
	return short
}
