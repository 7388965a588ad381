package istiotest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// Families contains the families of iptables.
var Families = []rules.Family{rules.IPv4, rules.IPv6}

// Load creates a namespace. With the programs of the variant, it loads the foreign rules of
// [Before], the rules of the case and the foreign rules of [After]; then it loads the case's tables
// with nft.
func Load(t testing.TB, v Variant, c Case) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	for _, f := range Families {
		Restore(t, ns, v, f, Before(t, f)+c.Save(f)+After(t, f))
	}
	if c.Tables != "" {
		Run(t, ns, c.Tables, "nft", "-f", "-")
	}
	return ns
}

// remaining caches the results of [Remaining].
var remaining sync.Map

// Remaining returns what [Dump] must return after all rules of Istio have been removed from a
// namespace of [Load]. It loads and dumps a namespace without Istio's rules.
func Remaining(t testing.TB, v Variant, c Case) string {
	t.Helper()
	without := Case{IPv4: withoutIstio(c.IPv4), IPv6: withoutIstio(c.IPv6)}
	key := [...]string{v.program, without.IPv4, without.IPv6}
	if found, ok := remaining.Load(key); ok {
		return found.(string)
	}
	found := Dump(t, Load(t, v, without), v)
	remaining.Store(key, found)
	return found
}

// Restore adds rules with their counters to the existing ones, with iptables-restore or
// ip6tables-restore.
func Restore(t testing.TB, ns *netns.NS, v Variant, f rules.Family, save string) {
	t.Helper()
	Run(t, ns, WithCounters(save), program(v, f)+"-restore", "--noflush", "--counters")
}

// RestoreLargeTable adds 110,000 rules of 344 bytes to an IPv4 table of iptables-legacy, which then
// exceeds the limit of package xtables.
func RestoreLargeTable(t testing.TB, ns *netns.NS, table string) {
	t.Helper()
	Restore(t, ns, Legacy, rules.IPv4,
		"*"+table+"\n"+strings.Repeat("-A OUTPUT\n", 110_000)+"COMMIT\n")
}

// WithCounters adds counters to the chains. iptables-restore requires them if it restores the
// counters of rules.
func WithCounters(save string) string {
	var lines []string
	for line := range strings.Lines(save) {
		if strings.HasPrefix(line, ":") && !strings.HasSuffix(line, "]\n") {
			line = strings.TrimSpace(line) + " [0:0]\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// Save lists the tables with counters, with iptables-save or ip6tables-save, without the comments
// that contain the time.
func Save(t testing.TB, ns *netns.NS, v Variant, f rules.Family) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(Run(t, ns, "", program(v, f)+"-save", "--counters")) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Dump lists the tables of both families with counters, and for iptables-nft the complete nf_tables
// ruleset.
func Dump(t testing.TB, ns *netns.NS, v Variant) string {
	t.Helper()
	text := Save(t, ns, v, rules.IPv4) + Save(t, ns, v, rules.IPv6)
	if v == NFT {
		text += Run(t, ns, "", "nft", "list", "ruleset")
	}
	return text
}

func program(v Variant, f rules.Family) string {
	name := map[rules.Family]string{rules.IPv4: "iptables-", rules.IPv6: "ip6tables-"}[f]
	return name + v.program
}

// Run runs a program in the namespace and returns its output. iptables uses a temporary lock file,
// so that parallel tests do not wait for each other.
func Run(t testing.TB, ns *netns.NS, input, name string, args ...string) string {
	t.Helper()
	out, err := TryRun(t, ns, input, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, input)
	}
	return out
}

// TryRun is like [Run], but returns an error if the program fails. The error contains the standard
// error of the program.
func TryRun(t testing.TB, ns *netns.NS, input, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, name), args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := ns.Do(cmd.Run); err != nil {
		return "", &runError{err, stderr.String()}
	}
	return stdout.String(), nil
}

// runError is the error of a failed program with its standard error.
type runError struct {
	err    error
	stderr string
}

func (e *runError) Error() string { return e.err.Error() + ": " + strings.TrimSpace(e.stderr) }
func (e *runError) Unwrap() error { return e.err }
