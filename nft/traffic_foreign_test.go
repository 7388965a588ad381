package nft_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// foreignTable redirects calls to some ports to port 9999, and drops calls to port 7777, at the
// standard priorities. The application listens on port 9999 in place of a foreign proxy.
const foreignTable = `table inet foreign {
	chain output {
		type nat hook output priority -100; policy accept;
		tcp dport { 80, 3306 } redirect to :9999
	}
	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		tcp dport { 8080, 15021 } redirect to :9999
	}
	chain filter {
		type filter hook output priority 0; policy accept;
		tcp dport 7777 drop
	}
}
`

// foreignLegacy contains the arguments of iptables-legacy for the same rules as in foreignTable,
// but for other ports.
var foreignLegacy = []string{
	"-t nat -A OUTPUT -p tcp -m multiport --dports 81,3307 -j REDIRECT --to-ports 9999",
	"-t nat -A PREROUTING -p tcp -m multiport --dports 8081,15090 -j REDIRECT --to-ports 9999",
	"-A OUTPUT -p tcp --dport 7778 -j DROP",
}

// callsWithForeignRules contains calls in a pod with foreign rules. The foreign rules do not affect
// traffic that Sluice captures. They apply to all other traffic.
var callsWithForeignRules = []row{
	{call: "app tcp world:80", want: "outbound"},
	{call: "app tcp world:81", want: "outbound"},
	{call: "app tcp world:443", want: "outbound"},
	{call: "in tcp pod:8080", want: "inbound"},
	{call: "in tcp pod:8081", want: "inbound"},
	{call: "in tcp pod:15020", want: "agent"},
	{call: "in tcp pod:15021", want: "application"}, // redirected to port 9999
	{call: "in tcp pod:15090", want: "application"},
	{call: "app tcp world:3306", want: "application"},
	{call: "app tcp world:3307", want: "application"},
	{call: "app tcp world:3308", want: "outside"},
	{call: "app tcp world:7777", want: "outbound"}, // redirected before the filter
	{call: "proxy tcp world:7777", want: "silent"},
	{call: "proxy tcp world:7778", want: "silent"},
	{call: "proxy tcp world:443", want: "outside"},
}

func TestTrafficWithForeignRules(t *testing.T) {
	t.Parallel()
	nftBinary, legacy4 := netnstest.RequireBinary(t, "nft"),
		netnstest.RequireBinary(t, "iptables-legacy")
	legacy6 := netnstest.RequireBinary(t, "ip6tables-legacy")
	for _, order := range []string{"foreign rules first", "Sluice first"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			b := startNetwork(t, testbed.Options{}, rules.ModeRedirect, nil)
			r := sidecar(rules.ModeRedirect)
			r.OutboundExcludePorts = must(rules.ParsePorts("3306-3308"))
			if order == "Sluice first" {
				applyRedirect(t, b, r)
			}
			run(t, b.Pod, foreignTable, nftBinary, "-f", "-")
			for _, args := range foreignLegacy {
				for _, binary := range []string{legacy4, legacy6} {
					run(t, b.Pod, "", binary, strings.Fields(args)...)
				}
			}
			listing := func() string {
				text := run(t, b.Pod, "", nftBinary, "list", "table", "inet", "foreign")
				for _, binary := range []string{legacy4, legacy6} {
					text += run(t, b.Pod, "", binary,
						"-S") + run(t, b.Pod, "", binary, "-t", "nat", "-S")
				}
				return text
			}
			before := listing()
			applyRedirect(t, b, r)
			checkAnswers(t, b, callsWithForeignRules)

			r.OutboundExcludePorts = must(rules.ParsePorts("3306-3309"))
			applyRedirect(t, b, r)
			checkAnswers(t, b,
				append([]row{{call: "app tcp world:3309", want: "outside"}}, callsWithForeignRules...))

			if _, err := nft.Remove(b.Pod); err != nil {
				t.Fatal(err)
			}
			checkAnswers(t, b, []row{
				{call: "app tcp world:80", want: "application"},
				{call: "app tcp world:443", want: "outside"},
			})
			if after := listing(); after != before {
				t.Errorf("the foreign rules changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// TestTrafficAtIstiosPriorities covers chains of equal priority: the kernel first calls the chain
// that was registered last. The deviation nat-first avoids this dependency on the order.
func TestTrafficAtIstiosPriorities(t *testing.T) {
	t.Parallel()
	nftBinary := netnstest.RequireBinary(t, "nft")
	b := startNetwork(t, testbed.Options{}, rules.ModeRedirect, nil)
	r := sidecar(rules.ModeRedirect)
	r.Without = []rules.DeviationID{rules.NATFirst}
	applyRedirect(t, b, r)
	checkAnswers(t, b, []row{{call: "app tcp world:80", want: "outbound"}})
	run(t, b.Pod, foreignTable, nftBinary, "-f", "-")
	checkAnswers(t, b, []row{{call: "app tcp world:80", want: "application"}})
	// A replacement keeps the position of the chains.
	r.OutboundExcludePorts = must(rules.ParsePorts("81"))
	applyRedirect(t, b, r)
	checkAnswers(t, b, []row{{call: "app tcp world:80", want: "application"}})
}

// checkAnswers is like checkCalls, but does not use the model, because the model has only the rules
// of Sluice. It first checks that the foreign proxy answers.
func checkAnswers(t *testing.T, b *testbed.Network, rows []row) {
	t.Helper()
	for _, c := range (row{call: "root tcp lo:9999"}).calls() {
		c.Timeout = callTimeout
		if got, err := b.Dial(c); err != nil || !isAnswer(got, "application") {
			t.Fatalf("%s: %s, error %v, want an answer of the foreign proxy", c, got, err)
		}
	}
	for _, r := range rows {
		for _, c := range r.calls() {
			if r.want != "silent" {
				c.Timeout = callTimeout
			}
			if got, err := b.Dial(c); err != nil || !isAnswer(got, r.want) {
				t.Errorf("%s: %s, error %v, want %s", c, got, err, r.want)
			}
		}
	}
}

// run runs a program in the namespace and returns its output.
func run(t *testing.T, ns *netns.NS, stdin, binary string, args ...string) string {
	t.Helper()
	var out []byte
	err := ns.Do(func() (err error) {
		cmd := exec.Command(binary, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v: %s", binary, strings.Join(args, " "), err, out)
	}
	return string(out)
}
