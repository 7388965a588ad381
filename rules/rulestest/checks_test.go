package rulestest_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	_ "pgregory.net/rapid" // defines the flag

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestSetRapidChecks(t *testing.T) {
	const name = "rapid.checks"
	f := flag.Lookup(name)
	initial := f.Value.String()
	for _, c := range []struct{ name, given, long, number, want string }{
		{"the long form", "", "1", "7", initial},
		{"a number of checks", "", "", "7", "7"},
		{"the short form", "", "", "", "15"},
		{"the flag is given", "20", "", "7", "20"},
	} {
		flag.CommandLine = unset(t)
		if c.given != "" {
			if err := flag.Set(name, c.given); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("SLUICE_LONG", c.long)
		t.Setenv("SLUICE_CHECKS", c.number)
		rulestest.SetRapidChecks(os.Getenv)
		if got := flag.Lookup(name).Value.String(); got != c.want {
			t.Errorf("%s: the flag has the value %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTrials(t *testing.T) {
	for _, c := range []struct {
		name, long, number string
		trials, want       int
	}{
		{"the long form", "1", "7", 200, 200},
		{"the short form", "", "", 200, 30},
		{"at least one trial", "", "", 3, 1},
		{"as many checks as in the long form", "", "100", 200, 200},
		{"more checks than in the long form", "", "300", 200, 600},
	} {
		getenv := func(name string) string {
			return map[string]string{"SLUICE_LONG": c.long, "SLUICE_CHECKS": c.number}[name]
		}
		if got := rulestest.Trials(c.trials, getenv); got != c.want {
			t.Errorf("%s: Trials(%d) is %d, want %d", c.name, c.trials, got, c.want)
		}
	}
	for _, number := range []string{"0", "-1", "many"} {
		func() {
			defer func() {
				want := `SLUICE_CHECKS="` + number + `" is not a positive integer`
				if got := recover(); got != want {
					t.Errorf("SLUICE_CHECKS=%s: the panic is %v, want %s", number, got, want)
				}
			}()
			rulestest.Trials(1, func(name string) string {
				return map[string]string{"SLUICE_CHECKS": number}[name]
			})
		}()
	}
}

func TestSample(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		name, long, number string
		want               []int
	}{
		{"the long form", "1", "7", all},
		{"the short form", "", "", []int{0, 3, 6}},
		{"fewer checks than in the long form", "", "99", []int{0, 3, 6}},
		{"as many checks as in the long form", "", "100", all},
	} {
		got := rulestest.Sample(all, func(name string) string {
			return map[string]string{"SLUICE_LONG": c.long, "SLUICE_CHECKS": c.number}[name]
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: Sample is %v, want %v", c.name, got, c.want)
		}
	}
}

// unset returns a flag set with all flags of flag.CommandLine. None of them counts as set, but they
// keep their values. unset restores flag.CommandLine when the test ends.
func unset(t *testing.T) *flag.FlagSet {
	t.Helper()
	before, flags := flag.CommandLine, flag.NewFlagSet("test", flag.ContinueOnError)
	before.VisitAll(func(f *flag.Flag) { flags.Var(f.Value, f.Name, f.Usage) })
	t.Cleanup(func() { flag.CommandLine = before })
	return flags
}
