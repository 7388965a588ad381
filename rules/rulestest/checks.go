package rulestest

import (
	"flag"
	"fmt"
	"strconv"
)

// The number of random inputs of a test by default in the short form, and in the long form, which is
// that of package rapid.
const shortChecks, longChecks = 25, 100

// SetChecks sets the number of random inputs of rapid.Check to $SLUICE_CHECKS, by default 25. It
// has no effect if the flag -rapid.checks is given, or with SLUICE_LONG=1, when rapid.Check tries
// 100. It parses the flags, and is called by TestMain of packages with expensive inputs. It panics
// if SLUICE_CHECKS is not a number.
func SetChecks(getenv func(string) string) {
	flag.Parse()
	given := getenv("SLUICE_LONG") == "1"
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checksFlag })
	if given {
		return
	}
	if err := flag.Set(checksFlag, strconv.Itoa(checks(getenv))); err != nil {
		panic(err)
	}
}

// Trials returns how often a test tries what chance decides and rapid.Check does not: longTrials in
// the long form, else in proportion to the number of random inputs, as above, and at least once. It
// panics as SetChecks does.
func Trials(longTrials int, getenv func(string) string) int {
	if getenv("SLUICE_LONG") == "1" {
		return longTrials
	}
	return max(1, longTrials*checks(getenv)/longChecks)
}

// checks is the number of random inputs in the short form.
func checks(getenv func(string) string) int {
	text := getenv("SLUICE_CHECKS")
	if text == "" {
		return shortChecks
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		panic(fmt.Sprintf("SLUICE_CHECKS=%q is not a number from 1", text))
	}
	return number
}

const checksFlag = "rapid.checks"
