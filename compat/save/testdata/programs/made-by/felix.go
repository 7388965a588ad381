// Command felix installs the chains of one workload endpoint and one host endpoint. It calls
// felix's packages rules and iptables like felix's data plane (felix/dataplane/linux).
package main

import (
	"sync"
	"time"

	"github.com/projectcalico/calico/felix/config"
	"github.com/projectcalico/calico/felix/environment"
	"github.com/projectcalico/calico/felix/ipsets"
	"github.com/projectcalico/calico/felix/iptables"
	"github.com/projectcalico/calico/felix/logutils"
	"github.com/projectcalico/calico/felix/proto"
	"github.com/projectcalico/calico/felix/rules"
)

func ports(first, last int32) []*proto.PortRange {
	return []*proto.PortRange{{First: first, Last: last}}
}

func protocol(name string) *proto.Protocol {
	return &proto.Protocol{NumberOrName: &proto.Protocol_Name{Name: name}}
}

func main() {
	r := rules.NewRenderer(rules.Config{
		IPSetConfigV4: &ipsets.IPVersionConfig{Version: "4"}, IPSetConfigV6: &ipsets.IPVersionConfig{Version: "6"},
		WorkloadIfacePrefixes: []string{"cali"},
		IptablesMarkAccept:    0x10000, IptablesMarkPass: 0x20000, IptablesMarkScratch0: 0x40000, IptablesMarkScratch1: 0x80000,
		IptablesMarkEndpoint: 0xfff00000, IptablesMarkNonCaliEndpoint: 0x100000,
		IPIPEnabled: true, VXLANEnabled: true, VXLANPort: 4789, VXLANVNI: 4096,
		EndpointToHostAction: "RETURN", IptablesFilterAllowAction: "ACCEPT", IptablesMangleAllowAction: "ACCEPT",
		IptablesFilterDenyAction: "DROP",
		FailsafeInboundHostPorts: []config.ProtoPort{
			{Net: "0.0.0.0/0", Protocol: "tcp", Port: 22},
			{Net: "0.0.0.0/0", Protocol: "udp", Port: 68},
			{Net: "0.0.0.0/0", Protocol: "tcp", Port: 179},
		},
		FailsafeOutboundHostPorts: []config.ProtoPort{
			{Net: "0.0.0.0/0", Protocol: "udp", Port: 53},
			{Net: "0.0.0.0/0", Protocol: "udp", Port: 67},
			{Net: "0.0.0.0/0", Protocol: "tcp", Port: 2379},
		},
		ServiceLoopPrevention: "Drop",
	})
	detector := environment.NewFeatureDetector(nil)
	var lock sync.Mutex
	table := func(name string) *iptables.Table {
		return iptables.NewTable(name, 4, rules.RuleHashPrefix, &lock, detector, iptables.TableOptions{
			HistoricChainPrefixes: rules.AllHistoricChainNamePrefixes, InsertMode: "insert", BackendMode: "legacy",
			RefreshInterval: 90 * time.Second, OnStillAlive: func() {}, OpRecorder: logutils.NewSummarizer(""),
		})
	}
	raw, mangle, nat, filter := table("raw"), table("mangle"), table("nat"), table("filter")
	jump := func(chain string) []iptables.Rule {
		return []iptables.Rule{{Action: iptables.JumpAction{Target: chain}}}
	}

	// Add the static chains, like setUpIptablesNormal in felix/dataplane/linux/int_dataplane.go.
	raw.UpdateChains(r.StaticRawTableChains(4))
	raw.InsertOrAppendRules("PREROUTING", jump(rules.ChainRawPrerouting))
	raw.InsertOrAppendRules("OUTPUT", jump(rules.ChainRawOutput))
	filter.UpdateChains(r.StaticFilterTableChains(4))
	filter.InsertOrAppendRules("FORWARD", jump(rules.ChainFilterForward))
	filter.InsertOrAppendRules("INPUT", jump(rules.ChainFilterInput))
	filter.InsertOrAppendRules("OUTPUT", jump(rules.ChainFilterOutput))
	filter.AppendRules("FORWARD", r.StaticFilterForwardAppendRules())
	nat.UpdateChains(r.StaticNATTableChains(4))
	nat.InsertOrAppendRules("PREROUTING", jump(rules.ChainNATPrerouting))
	nat.AppendRules("POSTROUTING", jump(rules.ChainNATPostrouting))
	nat.InsertOrAppendRules("OUTPUT", jump(rules.ChainNATOutput))
	mangle.UpdateChains(r.StaticMangleTableChains(4))
	mangle.InsertOrAppendRules("PREROUTING", jump(rules.ChainManglePrerouting))
	mangle.InsertOrAppendRules("POSTROUTING", jump(rules.ChainManglePostrouting))

	// Add the chains for NAT and against service loops, like masq_mgr.go, floating_ip_mgr.go and
	// service_loop_mgr.go.
	nat.UpdateChain(r.NATOutgoingChain(true, 4))
	nat.UpdateChains(r.DNATsToIptablesChains(map[string]string{"203.0.113.30": "10.244.0.2"}))
	nat.UpdateChains(r.SNATsToIptablesChains(map[string]string{"10.244.0.2": "203.0.113.30"}))
	filter.UpdateChains(r.BlockedCIDRsToIptablesChains([]string{"10.96.0.0/16"}, 4))

	// Add the chains of a policy of each kind, like policy_mgr.go.
	policy := func(name string, p *proto.Policy) {
		chains := r.PolicyToIptablesChains(&proto.PolicyID{Tier: "default", Name: name}, p, 4)
		raw.UpdateChains(chains)
		mangle.UpdateChains(chains)
		filter.UpdateChains(chains)
	}
	policy("web", &proto.Policy{
		InboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("tcp"), SrcIpSetIds: []string{"s:clients"}, DstPorts: ports(80, 81), RuleId: "web-1"},
			{Action: "allow", Protocol: protocol("tcp"), SrcNet: []string{"192.168.7.0/24"}, DstPorts: ports(443, 443), RuleId: "web-2"},
			{Action: "allow", Protocol: protocol("icmp"), Icmp: &proto.Rule_IcmpType{IcmpType: 8}, RuleId: "web-3"},
		},
		OutboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("udp"), DstPorts: ports(53, 53), RuleId: "web-4"},
			{Action: "deny", DstNet: []string{"169.254.169.254/32", "10.0.0.0/8"}, RuleId: "web-5"},
			{Action: "allow", NotDstIpSetIds: []string{"s:secret"}, RuleId: "web-6"},
		},
	})
	policy("host", &proto.Policy{
		InboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("tcp"), DstPorts: ports(10250, 10250), SrcIpSetIds: []string{"s:clients"}, RuleId: "h-1"},
		},
		OutboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("tcp"), DstPorts: ports(443, 443), RuleId: "h-2"},
			{Action: "allow", DstIpPortSetIds: []string{"svc:api"}, RuleId: "h-3"},
		},
	})
	policy("untracked", &proto.Policy{
		Untracked: true,
		InboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("udp"), DstPorts: ports(5060, 5060), RuleId: "u-1"},
		},
		OutboundRules: []*proto.Rule{
			{Action: "allow", Protocol: protocol("udp"), SrcPorts: ports(5060, 5060), RuleId: "u-2"},
		},
	})
	policy("pre", &proto.Policy{
		PreDnat: true,
		InboundRules: []*proto.Rule{
			{Action: "allow", SrcNet: []string{"192.168.0.0/16", "172.16.0.0/12"}, RuleId: "p-1"},
			{Action: "deny", Protocol: protocol("tcp"), DstPorts: ports(30000, 32767), RuleId: "p-2"},
		},
	})
	inbound, outbound := r.ProfileToIptablesChains(&proto.ProfileID{Name: "kns.default"}, &proto.Profile{
		InboundRules: []*proto.Rule{{Action: "allow", RuleId: "k-1"}}, OutboundRules: []*proto.Rule{{Action: "allow", RuleId: "k-2"}},
	}, 4)
	filter.UpdateChains([]*iptables.Chain{inbound, outbound})
	mangle.UpdateChains([]*iptables.Chain{outbound})

	// Add the chains of the endpoints, like endpoint_mgr.go.
	group := func(name string, d rules.PolicyDirection) []*rules.PolicyGroup {
		return []*rules.PolicyGroup{{Tier: "default", Direction: d, PolicyNames: []string{name}, Selector: "all()"}}
	}
	in, out := rules.PolicyDirectionInbound, rules.PolicyDirectionOutbound
	marks := rules.NewEndpointMarkMapper(0xfff00000, 0x100000)
	workloads := map[proto.WorkloadEndpointID]*proto.WorkloadEndpoint{
		{OrchestratorId: "k8s", WorkloadId: "default/web", EndpointId: "eth0"}: {Name: "cali12345678901"},
	}
	hosts := map[string]proto.HostEndpointID{"eth0": {EndpointId: "node-eth0"}}
	filter.UpdateChains(r.WorkloadDispatchChains(workloads))
	filter.UpdateChains(r.WorkloadEndpointToIptablesChains("cali12345678901", marks, true, group("web", in), group("web", out), []string{"kns.default"}))
	filter.UpdateChains(r.HostDispatchChains(hosts, "", true))
	filter.UpdateChains(r.HostEndpointToFilterChains("eth0", marks, group("host", in), group("host", out), nil, nil, []string{"kns.default"}))
	filter.UpdateChains(r.EndpointMarkDispatchChains(marks, workloads, hosts))
	mangle.UpdateChains(r.HostEndpointToMangleEgressChains("eth0", group("host", out), []string{"kns.default"}))
	mangle.UpdateChains(r.HostEndpointToMangleIngressChains("eth0", group("pre", in)))
	mangle.UpdateChains(append(r.FromHostDispatchChains(hosts, ""), r.ToHostDispatchChains(hosts, "")...))
	raw.UpdateChains(r.HostEndpointToRawChains("eth0", group("untracked", in), group("untracked", out)))
	raw.UpdateChains(r.HostDispatchChains(hosts, "", false))

	raw.UpdateChain(&iptables.Chain{Name: rules.ChainRpfSkip, Rules: []iptables.Rule{{
		Match: iptables.Match().InInterface("cali12345678901").SourceNet("203.0.113.64/26"), Action: iptables.AcceptAction{},
	}}})

	for _, t := range []*iptables.Table{raw, mangle, nat, filter} {
		t.Apply()
	}
}
