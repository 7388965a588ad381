package nft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestIstiosTablesAreKnownToTheModel reads the tables of istio-nftables (1.29) from a listing of
// the nft command.
func TestIstiosTablesAreKnownToTheModel(t *testing.T) {
	for _, name := range []string{"istio-everything-dual", "istio-tproxy-dual"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".nft"))
			if err != nil {
				t.Fatal(err)
			}
			rs := checkKnown(t, netnstest.New(t), string(text))
			golden(t, "read-"+name, rs.String())
		})
	}
}

// TestRecordedTablesOfIstioAreKnownToTheModel reads recordings of istio-nftables. SLUICE_GOLDEN
// names their directory, by default a directory next to the repository.
func TestRecordedTablesOfIstioAreKnownToTheModel(t *testing.T) {
	dir := os.Getenv("SLUICE_GOLDEN")
	if dir == "" {
		dir = "../../shared/golden"
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "nft.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no recordings (*/nft.txt) in %s: set SLUICE_GOLDEN to their directory", dir)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "table ") {
				checkKnown(t, netnstest.New(t), string(text))
			}
		})
	}
}

// checkKnown loads a text into the namespace, checks that no rule is missing or has an unknown
// expression, and returns the ruleset.
func checkKnown(t *testing.T, ns *netns.NS, text string) rules.Ruleset {
	t.Helper()
	load(t, ns, text)
	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range ruleTexts(rs) {
		if strings.Contains(rule, "unknown") {
			t.Errorf("%s, want a rule without unknown expressions", rule)
		}
	}
	checkHandles(t, ns, rs)
	return rs
}

// TestXtablesRulesAreReadInOrder loads rules of iptables-nft, some of which use xtables extensions.
func TestXtablesRulesAreReadInOrder(t *testing.T) {
	ns := netnstest.New(t)
	restore(t, ns, "iptables-nft-restore", `*nat
-A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001
-A OUTPUT -m mark --mark 0x539 -j RETURN
-A OUTPUT -d 10.0.0.0/8 -m addrtype --dst-type LOCAL -j ACCEPT
-A OUTPUT -p tcp -m multiport --dports 80,443 -j DNAT --to-destination 10.1.1.1
-A OUTPUT -m statistic --mode random --probability 0.5 -j RETURN
-A OUTPUT -s 10.0.0.1 -j RETURN
COMMIT
*filter
-A INPUT -i eth0 -j DROP
COMMIT
`)
	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	checkHandles(t, ns, rs)
	unknown := 0
	for _, rule := range ruleTexts(rs) {
		if strings.Contains(rule, "unknown") {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("%d rules with an unknown expression, want 1, the rule with statistic:\n%s",
			unknown, strings.Join(ruleTexts(rs), "\n"))
	}
}

// TestDormantTableIsNotReadAsActive covers the flag dormant: the kernel calls none of the table's
// chains.
func TestDormantTableIsNotReadAsActive(t *testing.T) {
	ns := netnstest.New(t)
	rs := example("sidecar-ipv4")
	mustApply(t, ns, rs, Created)
	load(t, ns, "add table inet sluice { flags dormant; }")
	got, err := Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	if rules.Equal(rs, got) {
		t.Error("Read returns the dormant table as active")
	}
	all, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	if rules.Equal(rs, all) {
		t.Error("ReadAll returns the dormant table as active")
	}
	mustApply(t, ns, rs, Replaced)
	checkRuleset(t, ns, rs)
	if list := nftCommand(t, ns, "", "list", "ruleset"); strings.Contains(list, "dormant") {
		t.Errorf("the table is still dormant after Apply:\n%s", list)
	}
}

// TestForeignTablesStayUnchanged creates, replaces and removes the Sluice table.
func TestForeignTablesStayUnchanged(t *testing.T) {
	ns := netnstest.New(t)
	load(t, ns,
		"table ip sluice {\n chain c {\n type filter hook input priority 0;\n counter\n }\n }\n"+
			"table inet sluice2 {\n set s {\n type ipv4_addr\n elements = { 1.2.3.4 }\n }\n chain nat-output {\n ip saddr @s drop\n }\n }\n")
	before := nftCommand(t, ns, "", "list", "ruleset")
	for _, step := range []func(){
		func() { mustApply(t, ns, example("tproxy-dual"), Created) },
		func() { mustApply(t, ns, example("sidecar-ipv4"), Replaced) },
		func() {
			if _, err := Remove(ns); err != nil {
				t.Fatal(err)
			}
		},
	} {
		step()
		if after := nftCommand(t, ns, "", "list", "ruleset"); !strings.HasPrefix(after, before) {
			t.Fatalf("the foreign tables changed from\n%s\nto\n%s", before, after)
		}
	}
}

// TestTablesThatHaveNotChangedAreNotReadAgain checks that ReadSince omits the tables if the
// generation has not changed.
func TestTablesThatHaveNotChangedAreNotReadAgain(t *testing.T) {
	ns := netnstest.New(t)
	load(t, ns, "table inet sluice { chain nat-output { counter accept; }; }")
	first, err := ReadSince(ns, 0, rules.Routing{})
	generation := first.Generation
	if err != nil || len(first.Tables) != 1 || generation == 0 {
		t.Fatalf("%d tables at generation %d, error %v, want one table", len(first.Tables),
			generation, err)
	}
	second, err := ReadSince(ns, generation, first.Routing)
	if err != nil || len(second.Tables) != 0 || second.Generation != generation {
		t.Errorf("%d tables at generation %d, error %v, want none at generation %d",
			len(second.Tables), second.Generation, err, generation)
	}
	load(t, ns, "add rule inet sluice nat-output drop")
	changed, err := ReadSince(ns, generation, first.Routing)
	if err != nil || len(changed.Tables) != 1 || len(changed.Tables[0].Chains[0].Rules) != 2 ||
		changed.Generation == generation {
		t.Errorf("tables %v at generation %d, error %v, want 2 rules at another generation",
			changed.Tables, changed.Generation, err)
	}
}

// TestRequestsOfAReadAreLimited checks that a pod cannot occupy a process that reads its rules by
// many empty sets or tables, each of which needs requests.
func TestRequestsOfAReadAreLimited(t *testing.T) {
	t.Parallel()
	many := func(format string) string {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"sets":   "table inet sluice { " + many("set s%d { type ipv4_addr; }; ") + "}",
		"tables": many("table inet t%d { }\n"),
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			load(t, ns, text)
			withConn(t, ns, func(c *conn) error {
				for limit, want := range map[int]error{
					50 * requestSize: errTooLong, 400 * requestSize: nil,
				} {
					c.maxSize = limit
					tables, _, err := c.listTables(nil)
					if err != nil {
						return err
					}
					if _, _, err := c.readTables(tables, newExpectation(nil), nil); !errors.Is(err, want) {
						t.Errorf("with a limit of %d bytes: error %v, want %v", limit, err, want)
					}
				}
				return nil
			})
		})
	}
}

// TestRulesAreReadOnlyUpToTheLimit checks that a pod cannot exhaust the memory of a process that
// reads its rules.
func TestRulesAreReadOnlyUpToTheLimit(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	load(t, ns, "table inet sluice { chain c { "+
		strings.Repeat("ip daddr 10.0.0.1 counter accept; ", 100)+"}; }")
	withConn(t, ns, func(c *conn) error {
		for _, row := range []struct {
			limit int
			want  error
		}{{30 << 10, errTooLong}, {60 << 10, errTooLong}, {100 << 10, nil}} {
			c.maxSize = row.limit
			found, err := c.findSluiceTable()
			if err != nil {
				return err
			}
			if _, err = c.readSluiceTable(found, newExpectation(nil)); !errors.Is(err, row.want) {
				t.Errorf("with a limit of %d bytes: error %v, want %v", row.limit, err, row.want)
			}
		}
		return nil
	})
}

// TestReadsOfAProcessHaveALimit is not parallel, because the limit applies to the process.
func TestReadsOfAProcessHaveALimit(t *testing.T) {
	t.Cleanup(func() { LimitReads(maxReadSize) })
	ns := netnstest.New(t)
	load(t, ns, "table inet t { chain c { "+
		strings.Repeat("ip daddr 10.0.0.1 counter accept; ", 4000)+"}; }")
	for limit, want := range map[int64]error{1 << 20: errTooLong, 8 << 20: nil} {
		LimitReads(limit)
		_, err := ReadAll(ns)
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "limit of 1 MiB,") {
			t.Errorf("with a limit of %d bytes: error %v, want %v", limit, err, want)
		}
	}
	LimitReads(1 << 40)
	if got := readSize.Load(); got != maxReadSize {
		t.Errorf("the limit is %d bytes, want at most %d", got, maxReadSize)
	}
}
