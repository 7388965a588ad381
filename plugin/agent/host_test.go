package agent_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestRulesOfTheNodePassTheSocketUnchanged checks that the parameters of the node's rules are the
// same on both sides of the socket.
func TestRulesOfTheNodePassTheSocketUnchanged(t *testing.T) {
	want := &agent.HostRules{
		NetNS: "/host/proc/1/ns/net", Proc: "/host/proc", Backend: "nft", Parameters: rules.DefaultAmbientHost(),
	}
	want.Parameters.Pods = []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	want.Parameters.Kubelet = rules.MatchCgroup{Path: "system.slice/kubelet.service", Level: 2, ID: 4711}
	want.Parameters.Without = []rules.DeviationID{rules.NATFirst}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	c := agent.Caller{Socket: agenttest.Listen(t, agenttest.Reply(t,
		agenttest.Frames(`{"version":1}`, string(body))))}
	got, err := c.Host(requestContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("rules of the node (-want +got)\n%s", d)
	}
	for name, row := range map[string]struct{ old, new, want string }{
		"another backend":      {`"nft"`, `"ebpf"`, `its answer is invalid: backend: "ebpf" is neither nft nor legacy`},
		"no network namespace": {"/host/proc/1/ns/net", "", "its answer is invalid: there is no network namespace"},
		"an invalid address":   {"10.244.1.5", "127.0.0.1", "its answer is invalid: parameters: Pods: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := agent.Caller{Socket: agenttest.Listen(t, agenttest.Reply(t,
				agenttest.Frames(`{"version":1}`, strings.Replace(string(body), row.old, row.new, 1))))}
			_, err := c.Host(requestContext(t))
			agenttest.CheckText(t, err, row.want)
		})
	}
}
