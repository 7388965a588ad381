package nft

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// tester contains methods that *testing.T, *testing.B and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// long reports whether the tests run with more repetitions.
var long = os.Getenv("SLUICE_LONG") == "1"

// repetitions returns the number of repetitions of a test: many if long is set, few otherwise.
func repetitions(few, many int) int {
	if long {
		return many
	}
	return few
}

// mustApply applies the ruleset and returns the result. The outcome must be one of want.
func mustApply(t tester, ns *netns.NS, rs rules.Ruleset, want ...Outcome) Result {
	t.Helper()
	result, err := whileBusy(func() (Result, error) { return Apply(ns, rs) })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(want, result.Outcome) {
		t.Fatalf("Apply: outcome %s, want one of %v", result.Outcome, want)
	}
	return result
}

// checkRuleset checks that the namespace has exactly the tables and routing of the ruleset.
func checkRuleset(t tester, ns *netns.NS, want rules.Ruleset) {
	t.Helper()
	got, err := whileBusy(func() (rules.Ruleset, error) { return Read(ns) })
	if err != nil {
		t.Fatal(err)
	}
	if diffs := rules.Compare(want, got); len(diffs) > 0 {
		t.Fatalf("the namespace does not have the ruleset:\n%s", listing(diffs))
	}
}

// whileBusy repeats an operation as long as it fails with errBusy. On a busy machine, other
// processes may change the ruleset during every attempt to read it.
func whileBusy[T any](operation func() (T, error)) (T, error) {
	for {
		if result, err := operation(); !errors.Is(err, errBusy) {
			return result, err
		}
	}
}

// listing returns one line for each difference.
func listing(diffs []rules.Difference) string {
	lines := make([]string, len(diffs))
	for i, d := range diffs {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// nftCommand runs the nft command in the namespace and returns its standard output.
func nftCommand(t testing.TB, ns *netns.NS, stdin string, args ...string) string {
	t.Helper()
	return command(t, ns, stdin, "nft", args...)
}

// restore loads the text with a restore command of iptables.
func restore(t testing.TB, ns *netns.NS, program, text string) {
	t.Helper()
	command(t, ns, text, program)
}

// command runs a program in the namespace and returns its standard output.
func command(t testing.TB, ns *netns.NS, stdin, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, program), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	var out []byte
	err := ns.Do(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", program, strings.Join(args, " "), err, stderr.String(), stdin)
	}
	return string(out)
}

// load executes the commands of the text with the nft command.
func load(t testing.TB, ns *netns.NS, text string) {
	t.Helper()
	nftCommand(t, ns, text, "-f", "-")
}

// generationOf returns the generation id of the namespace's ruleset.
func generationOf(t tester, ns *netns.NS) (id uint32) {
	t.Helper()
	withConn(t, ns, func(c *conn) (err error) {
		id, err = c.generation()
		return err
	})
	return id
}

// withConn opens a socket in the namespace and passes it to do.
func withConn(t tester, ns *netns.NS, do func(c *conn) error) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		return do(c)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkEmpty checks that the namespace has no tables, and no routing of Sluice.
func checkEmpty(t tester, ns *netns.NS) {
	t.Helper()
	all, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Tables) > 0 || !all.Routing.IsZero() {
		t.Fatalf("the namespace is not empty:\n%s", all)
	}
	routing, err := route.Read(ns)
	if err != nil || !routing.IsZero() {
		t.Fatalf("routing %+v, error %v, want no routing", routing, err)
	}
}
