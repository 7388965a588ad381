package save_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestStateOfEarlierPacketsIsCompared verifies comparisons of rules whose conditions depend on
// state that rules write for later packets.
func TestStateOfEarlierPacketsIsCompared(t *testing.T) {
	const (
		listed  = "-A PREROUTING -p tcp -m recent --rcheck --name a -j DROP"
		set     = "-A PREROUTING -m recent --set --name a"
		marked  = "-A PREROUTING -m recent --rcheck --name a -j MARK --set-mark 5"
		inX     = "-A x -m recent --rcheck --name a -j MARK --set-mark 5"
		blocked = "-A PREROUTING -m set --match-set bad src -j DROP"
	)
	for _, tc := range []struct {
		name, left, right string
		want              diff.Verdict
	}{
		{"a list without writers", listed, listed, diff.Equivalent},
		{"a list that both sides write", set + "\n" + listed, set + "\n" + listed, diff.Equivalent},
		{"a list that one side writes", set + "\n" + listed, listed, diff.Undecidable},
		{
			"a write for other packets", set + " -s 10.0.0.0/8\n" + listed, set + "\n" + listed,
			diff.Undecidable,
		},
		{
			"a write before a match that fails",
			"-A PREROUTING -m recent --set --name a -m mark --mark 7\n" + listed,
			set + "\n" + listed, diff.Undecidable,
		},
		{
			"a write to another list", "-A PREROUTING -m recent --set --name b\n" + listed, listed,
			diff.Equivalent,
		},
		{
			"a write after a rule that ends the chain",
			"-A PREROUTING -p udp -j ACCEPT\n" + set + "\n" + listed, set + "\n" + listed,
			diff.Undecidable,
		},
		{
			"a write at input", "-A INPUT -m recent --set --name a\n" + listed, listed,
			diff.Undecidable,
		},
		{
			"an update of a list on one side", "-A PREROUTING -m recent --update --name a\n" + listed, listed,
			diff.Undecidable,
		},
		{"--set always matches", set + " -j DROP", "-A PREROUTING -j DROP", diff.Equivalent},
		{
			"a hashlimit name that two rules share",
			"-A PREROUTING -m hashlimit --hashlimit-upto 1/s --hashlimit-name h\n" +
				"-A PREROUTING -m hashlimit --hashlimit-upto 1/s --hashlimit-name h -j DROP",
			"-A PREROUTING -m hashlimit --hashlimit-upto 1/s --hashlimit-name h -j DROP",
			diff.Undecidable,
		},
		{
			"connection labels that one side sets",
			"-A PREROUTING -m connlabel --label 1 --set\n-A PREROUTING -m connlabel --label 1 -j DROP",
			"-A PREROUTING -m connlabel --label 1 -j DROP", diff.Undecidable,
		},
		{
			"connection labels that both sides set",
			"-A PREROUTING -m connlabel --label 1 --set\n-A PREROUTING -m connlabel --label 1 -j DROP",
			"-A PREROUTING -m connlabel --label 1 --set\n-A PREROUTING -m connlabel --label 1 -j DROP", diff.Equivalent,
		},
		{
			"a rate that one side measures",
			"-A PREROUTING -j RATEEST --rateest-name r --rateest-interval 250ms --rateest-ewmalog 0.5s\n" +
				"-A PREROUTING -m rateest --rateest r --rateest-gt --rateest-pps 5 -j DROP",
			"-A PREROUTING -m rateest --rateest r --rateest-gt --rateest-pps 5 -j DROP",
			diff.Undecidable,
		},
		{
			"a write before the condition, and after it", set + "\n" + marked, marked + "\n" + set,
			diff.Undecidable,
		},
		{
			"a write after the condition for some packets",
			"-A PREROUTING -p tcp -j x\n" + set + "\n-A PREROUTING -p udp -j x\n" + inX,
			set + "\n-A PREROUTING -p tcp -j x\n-A PREROUTING -p udp -j x\n" + inX,
			diff.Undecidable,
		},
		{
			"a write for packets that do not reach the condition",
			set + " -p icmp\n-A PREROUTING -p tcp -j x\n" + inX,
			"-A PREROUTING -p tcp -j x\n" + set + " -p icmp\n" + inX,
			diff.Equivalent,
		},
		{
			"writes in another order for some packets",
			"-A PREROUTING -p tcp -j x\n-A PREROUTING -j y\n-A PREROUTING -p udp -j x\n" + marked +
				"\n-A x -m recent --set --name a\n-A y -m recent --remove --name a",
			"-A PREROUTING -j x\n-A PREROUTING -j y\n" + marked +
				"\n-A x -m recent --set --name a\n-A y -m recent --remove --name a",
			diff.Undecidable,
		},
		{
			"one write on one side, and two writes on the other",
			"-A PREROUTING -j x\n-A PREROUTING -j x\n" + marked + "\n-A x -m recent --update --name a",
			"-A PREROUTING -j x\n" + marked + "\n-A x -m recent --update --name a",
			diff.Undecidable,
		},
		{"an ipset on both sides", blocked, blocked, diff.Equivalent},
		{
			"an ipset in a rule at another position",
			blocked + "\n-A PREROUTING -p tcp -j MARK --set-mark 1",
			"-A PREROUTING -p tcp -j MARK --set-mark 1\n" + blocked, diff.Equivalent,
		},
		{"an ipset on one side", blocked, "", diff.Different},
		{"another ipset", blocked, strings.ReplaceAll(blocked, "bad", "worse"), diff.Different},
		{
			"an ipset with the other direction", blocked, strings.ReplaceAll(blocked, "src", "dst"),
			diff.Different,
		},
		{
			"an ipset, negated with exchanged verdicts", blocked,
			"-A PREROUTING -m set ! --match-set bad src -j ACCEPT\n-A PREROUTING -j DROP",
			diff.Equivalent,
		},
		{
			"an ipset that a rule of one side adds to",
			"-A PREROUTING -p udp -j SET --add-set bad src\n" + blocked, blocked, diff.Undecidable,
		},
		{
			"an ipset that rules of both sides add to",
			"-A PREROUTING -p udp -j SET --add-set bad src\n" + blocked,
			"-A PREROUTING -p udp -j SET --add-set bad src\n" + blocked, diff.Equivalent,
		},
		{
			"an ipset that may contain the ipset that a rule adds to",
			"-A PREROUTING -p udp -j SET --add-set other src\n" + blocked, blocked,
			diff.Undecidable,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkVerdict(t, inMangle(t, tc.left), inMangle(t, tc.right), tc.want)
		})
	}
}

// TestPortsOfSCTPAreCompared verifies comparisons of rules that match ports of SCTP.
func TestPortsOfSCTPAreCompared(t *testing.T) {
	for _, tc := range []struct {
		name, left, right string
		want              diff.Verdict
	}{
		{
			"ports of SCTP", "-A PREROUTING -p sctp -m sctp --dport 80 -j DROP",
			"-A PREROUTING -p sctp -m multiport --dports 80 -j DROP", diff.Equivalent,
		},
		{
			"another port of SCTP", "-A PREROUTING -p sctp -m sctp --dport 80 -j DROP",
			"-A PREROUTING -p sctp -m sctp --dport 81 -j DROP", diff.Different,
		},
		{
			"the same port of SCTP and TCP",
			"-A PREROUTING -p sctp -m sctp --dport 80 -j DROP",
			"-A PREROUTING -p tcp -m tcp --dport 80 -j DROP", diff.Different,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkVerdict(t, inMangle(t, tc.left), inMangle(t, tc.right), tc.want)
		})
	}
}

// TestExplainReportsDependencies explains a packet whose outcome depends on an ipset.
func TestExplainReportsDependencies(t *testing.T) {
	rs := inMangle(t, "-A PREROUTING -m set --match-set bad src -j DROP").Ruleset
	p, err := rules.ParsePacket("in tcp 192.0.2.10:40000 > 10.244.1.5:8080")
	if err != nil {
		t.Fatal(err)
	}
	trace := diff.Explain(&rs, p)
	if trace.Outcome.Dropped || len(trace.Alternatives) != 1 || !trace.Alternatives[0].Dropped {
		t.Errorf("outcome %s, alternatives %v, want a drop as the only alternative", trace.Outcome,
			trace.Alternatives)
	}
	if got := strings.Join(trace.DependsOn, "; "); got != "src ipset bad" {
		t.Errorf("depends on %q, want the source and the ipset", got)
	}
}

// TestReasonExplainsTheOutcome verifies that the reason for a redirection on the left side is the
// redirecting rule, even if the right side drops the packet.
func TestReasonExplainsTheOutcome(t *testing.T) {
	const redirect = "-A PREROUTING -p tcp -j REDIRECT --to-ports 9"
	left := sideOf(t, "nat", redirect)
	right := sideOf(t, "nat", redirect)
	right.Ruleset.Tables = append(right.Ruleset.Tables,
		inMangle(t, "-A PREROUTING -p tcp -j DROP").Ruleset.Tables...)
	r := diff.Decide(left, right, diff.Options{Families: []rules.Family{rules.IPv4}})
	if len(r.Classes) == 0 {
		t.Fatal("no difference is reported, want a class")
	}
	for _, c := range r.Classes {
		if o := c.Outcome.Left; o.Outcome.Redirect != 0 && (o.Decided == nil ||
			o.Decided.Chain.Name != "PREROUTING") {
			t.Errorf("%s: outcome %s, reason %q, want the redirecting rule", c.Witness, o.Outcome,
				o.Reason)
		}
	}
}

// inMangle parses rules of the mangle table.
func inMangle(t *testing.T, text string) diff.Side { return sideOf(t, "mangle", text) }

// sideOf parses the rules of a table. It declares the chains x and y if the rules use them.
func sideOf(t *testing.T, table, text string) diff.Side {
	t.Helper()
	chains := ":PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
	if table == "mangle" {
		chains += ":INPUT ACCEPT [0:0]\n"
	}
	for _, chain := range []string{"x", "y"} {
		if strings.Contains(text, "-A "+chain+" ") {
			chains += ":" + chain + " - [0:0]\n"
		}
	}
	text = "*" + table + "\n" + chains + text + "\nCOMMIT\n"
	tables, err := save.Parse(rules.IPv4, "text", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return diff.Side{Ruleset: rules.Ruleset{Tables: tables}}
}

// checkVerdict compares two sides for IPv4.
func checkVerdict(t *testing.T, left, right diff.Side, want diff.Verdict) {
	t.Helper()
	r := diff.Decide(left, right, diff.Options{Families: []rules.Family{rules.IPv4}})
	if got := r.StrictVerdict(); got != want {
		t.Errorf("verdict %s, want %s; undecided %+v, classes %+v", got, want, r.Undecided, r.Classes)
	}
}

// TestHelpersAreCompared verifies comparisons of rules that assign conntrack helpers.
func TestHelpersAreCompared(t *testing.T) {
	const helper = "-A PREROUTING -p tcp -m tcp --dport 21 -j CT --helper ftp"
	for _, tc := range []struct {
		name, left, right string
		want              diff.Verdict
	}{
		{"the same helper", helper, helper, diff.Equivalent},
		{"no helper on one side", helper, "", diff.Different},
		{"another helper", helper, strings.ReplaceAll(helper, "ftp", "sip"), diff.Different},
		{
			"a helper after a zone", "-A PREROUTING -j CT --zone 5\n" + helper,
			"-A PREROUTING -j CT --zone 5", diff.Equivalent,
		},
		{
			"notrack after a helper",
			helper + "\n-A PREROUTING -p tcp -m tcp --dport 21 -j CT --notrack", helper,
			diff.Equivalent,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkVerdict(t, sideOf(t, "raw", tc.left), sideOf(t, "raw", tc.right), tc.want)
		})
	}
}
