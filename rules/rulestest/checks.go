package rulestest

import (
	"flag"
	"fmt"
	"strconv"
)

// The default numbers of random inputs of a test in the short form and in the long form
// (SLUICE_LONG=1). The number in the long form is the default of package rapid.
const shortChecks, longChecks = 15, 100

// SetRapidChecks parses the flags and sets the number of random inputs of rapid.Check: the value of
// the flag -rapid.checks if it is given, in the long form rapid's default of 100, and otherwise
// $SLUICE_CHECKS, by default 15; it panics if this is not a positive integer. TestMain of packages
// with expensive inputs calls it.
func SetRapidChecks(getenv func(string) string) {
	flag.Parse()
	unchanged := getenv("SLUICE_LONG") == "1"
	flag.Visit(func(f *flag.Flag) { unchanged = unchanged || f.Name == checksFlag })
	if unchanged {
		return
	}
	if err := flag.Set(checksFlag, strconv.Itoa(checks(getenv))); err != nil {
		panic(err)
	}
}

// Trials returns the number of trials of a test with random inputs that does not use rapid.Check.
// In the long form (SLUICE_LONG=1), the number is longTrials. In the short form, it is longTrials
// multiplied by $SLUICE_CHECKS, by default 15, divided by 100, and at least 1; Trials panics if
// SLUICE_CHECKS is not a positive integer.
func Trials(longTrials int, getenv func(string) string) int {
	if getenv("SLUICE_LONG") == "1" {
		return longTrials
	}
	return max(1, longTrials*checks(getenv)/longChecks)
}

// Sample selects cases of a test with many similar cases: all of them in the long form or if
// $SLUICE_CHECKS is at least 100, and otherwise the first one and every third one after it. In the
// short form, Sample panics if SLUICE_CHECKS is not a positive integer.
func Sample[T any](all []T, getenv func(string) string) []T {
	if getenv("SLUICE_LONG") == "1" || checks(getenv) >= longChecks {
		return all
	}
	var sample []T
	for i := 0; i < len(all); i += 3 {
		sample = append(sample, all[i])
	}
	return sample
}

// checks returns the number of random inputs in the short form.
func checks(getenv func(string) string) int {
	text := getenv("SLUICE_CHECKS")
	if text == "" {
		return shortChecks
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		panic(fmt.Sprintf("SLUICE_CHECKS=%q is not a positive integer", text))
	}
	return number
}

// checksFlag is the flag of package rapid with the number of random inputs.
const checksFlag = "rapid.checks"
