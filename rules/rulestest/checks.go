package rulestest

import "flag"

// shortChecks is how many random inputs a test tries in the short form.
const shortChecks = "25"

// SetChecks sets how many random inputs rapid.Check tries: SLUICE_CHECKS of the environment, or 25
// where that is not set. It changes nothing where the flag -rapid.checks is given, nor with
// SLUICE_LONG=1: rapid.Check then tries 100. It parses the flags, and is called by TestMain of
// packages whose inputs are costly. It panics if SLUICE_CHECKS is not a number.
func SetChecks(getenv func(string) string) {
	flag.Parse()
	given := getenv("SLUICE_LONG") == "1"
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checksFlag })
	if given {
		return
	}
	number := getenv("SLUICE_CHECKS")
	if number == "" {
		number = shortChecks
	}
	if err := flag.Set(checksFlag, number); err != nil {
		panic(err)
	}
}

const checksFlag = "rapid.checks"
