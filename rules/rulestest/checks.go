package rulestest

import (
	"flag"
	"os"
)

// shortChecks is how many random inputs a test tries in the short form.
const shortChecks = "25"

// SetChecks sets how many random inputs rapid.Check tries: SLUICE_CHECKS, or 25 where that is not
// set. It changes nothing where the flag -rapid.checks is given, nor with SLUICE_LONG=1: rapid.Check
// then tries 100. It parses the flags, and is called by TestMain of packages whose inputs are costly.
func SetChecks() error {
	flag.Parse()
	given := os.Getenv("SLUICE_LONG") == "1"
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checksFlag })
	if given {
		return nil
	}
	number := os.Getenv("SLUICE_CHECKS")
	if number == "" {
		number = shortChecks
	}
	return flag.Set(checksFlag, number)
}

const checksFlag = "rapid.checks"
