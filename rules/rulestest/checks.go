package rulestest

import "flag"

// shortChecks is the default number of random inputs of a test in the short form.
const shortChecks = "25"

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
	number := getenv("SLUICE_CHECKS")
	if number == "" {
		number = shortChecks
	}
	if err := flag.Set(checksFlag, number); err != nil {
		panic(err)
	}
}

const checksFlag = "rapid.checks"
