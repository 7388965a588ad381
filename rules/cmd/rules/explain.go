package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

const explainHelp = `
Follow packets through a ruleset: print the rules that match, hook by hook and chain by chain, and
the outcome in one sentence.

The ruleset is compiled from the parameters, for the same pod as in rules show. With --live, the
kernel's rules in the namespace are used, of all owners, in nf_tables and iptables-legacy. --netns
or --pid without a parameter of the ruleset implies --live.

With --pod FILE, the file contains a pod or a workload, as printed by kubectl get -o yaml. If it
contains several objects, the first object is used, and a note reports this. The CNI plugin's
decision about the pod, its reason and the ruleset are printed; packets are optional. A note lists
annotations that may be misspelled.

If the runtime passes annotations to the plugin, the plugin may decide earlier and for another
reason; a note then reports this. A pod without an address is assumed to have one IPv4 address,
unless --pod-ip gives its addresses. With --pod NAMESPACE/NAME the node agent provides the desired
ruleset of a pod of this node; with --live the pod's live rules are used instead.

Packets are followed through the hooks prerouting and output, where redirection is decided, and
through postrouting if this host sends them. Chains of other owners at input and forward, and at
postrouting for packets that are forwarded, are not followed: they may drop a packet whose outcome
here is a redirection.

A packet is one argument, or several words. The arrow may also be written ->. Between words the
arrow may be omitted, because a shell interprets an unquoted > as a redirection to a file:

  %s

Alternatively, flags describe one packet: --out or --in with its protocol, --from, --to, --dev,
--uid, --gid and --state; other words follow as arguments.

Defaults: the interface is lo for an outgoing packet to a loopback address or to its own source, and
eth0 otherwise; the user is 0; the group equals the user; an ICMP message is an echo request; the
state is new, or related for an ICMP error; an ICMP reply and an ICMPv6 redirect have no default
state; the TCP flags are syn for a new connection and ack otherwise. no-listener means that no
transparent proxy listens. missing-listeners lists the ports, or addresses with ports such as
127.0.0.1:15006, of tproxy rules on which none listens, although others listen. reply means the
reply direction. bound and selects-interface mean that the interface is that of the socket, or that
the sender has selected it for this packet (IP_PKTINFO). in-address is the address of the input
interface, to which incoming packets are redirected. If the outcome depends on a property that is
not given, the property is reported as not known. Without no-reverse-path, transparent-socket and
transparent-sender, the route to the source is assumed to use the input interface, and the sockets
that receive and send the packet are assumed not to be transparent; if rules depend on it, the
assumption is printed. If the outcome depends on chance, as with a limit or a random number, or on a
list that the rules name but do not contain, the other possible outcomes are listed with the
conditions on which they depend.`

const explainExamples = `  rules explain -b '*' -i '*' 'out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000'
  rules explain -b '*' -i '*' out tcp 10.244.1.5:40000 10.96.0.1:443 uid 1000
  rules explain -b '*' -i '*' --out tcp --from 10.244.1.5:40000 --to 10.96.0.1:443 --uid 1000
  rules explain --ambient 'in tcp 169.254.7.127:40000 > 10.244.1.5:8080'
  kubectl get pod web -o yaml | rules explain --pod -
  kubectl get pod web -o yaml | rules explain --pod - --config /etc/cni/net.d/10-cluster.conflist
  kubectl exec -n istio-system ds/sluice-node -- rules explain --pod default/web --live 'in tcp 10.244.2.9:51000 > 10.244.1.5:8080'
  rules explain --pid 4711 'in tcp 10.244.2.9:51000 > 10.244.1.5:8080'`

func newExplainCommand(s *system) *cobra.Command {
	in := &inputs{
		sections: captureSectionsAnd(sectionNamespace, sectionAgent, sectionNode, sectionRunDir,
			sectionBackend, sectionLive, sectionExplain, sectionBudget, sectionOutput),
		ignoredSections: actionSections,
	}
	var packets []rules.Packet
	in.check = func(p *parameters, args []string) []error {
		var errs []error
		texts := packetTexts(args)
		if text, err := p.packet.text(args); err != nil {
			errs = append(errs, err)
		} else if text != "" {
			texts = []string{text}
		}
		var wrong []error
		packets, wrong = parsePackets(texts)
		errs = append(errs, wrong...)
		if p.config != "" && p.podFile == "" {
			errs = append(errs, errors.New("--config requires --pod with a file"))
		}
		if p.podFile != "" {
			return slices.Concat(errs, in.podConflicts(p), in.backendWithoutLive(p))
		}
		if p.pod != (podName{}) {
			return slices.Concat(errs, liveWithoutPacket(p, packets), in.backendWithoutLive(p))
		}
		if len(packets) == 0 && p.packet == (packetFlags{}) {
			errs = append(errs,
				errors.New("no packet to explain, such as "+
					"'out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000'"))
		}
		// A namespace without a parameter of the ruleset implies --live.
		hasRuleset := len(in.givenIn(captureSections)) > 0
		p.live = p.live || !hasRuleset && (p.netnsPath != "" || p.pid != 0)
		return slices.Concat(errs, in.rejectedWithLive(p), in.backendWithoutLive(p))
	}
	cmd := &cobra.Command{
		Use:   "explain [FLAG]... [PACKET]...",
		Short: "follow a packet through the rules",
		Long: fmt.Sprintf(explainHelp,
			strings.Join(wrap(rules.PacketSyntax, helpWidth-2), "\n  ")),
		Example: explainExamples,
	}
	return s.command(cmd, in, func(p *parameters, _ []string) error {
		return explain(s, p, packets)
	})
}

// rejectedWithLive returns an error for each parameter of the ruleset that is given with --live.
func (in *inputs) rejectedWithLive(p *parameters) []error {
	var errs []error
	if p.live {
		for _, name := range in.givenIn(captureSections) {
			errs = append(errs,
				fmt.Errorf("--live uses the rules of the kernel: --%s has no effect on them", name))
		}
	}
	return errs
}

// backendWithoutLive returns an error for --backend without --live, because it only selects live
// rules.
func (in *inputs) backendWithoutLive(p *parameters) []error {
	if !p.live && len(in.given["backend"]) > 0 {
		return []error{errors.New("--backend requires --live: it selects the kernel's rules to read")}
	}
	return nil
}

// liveWithoutPacket returns an error for --live without a packet.
func liveWithoutPacket(p *parameters, packets []rules.Packet) []error {
	if p.live && len(packets) == 0 {
		return []error{errors.New("--live: no packet to explain")}
	}
	return nil
}

// givenIn returns the names of the flags of the sections that the command line sets.
func (in *inputs) givenIn(sections []section) []string {
	var flags []string
	for _, p := range in.parameters {
		if len(in.given[p.flag]) > 0 && slices.Contains(sections, p.section) {
			flags = append(flags, p.flag)
		}
	}
	return flags
}

// parsePackets parses packets. It returns a packet for each text, and the errors.
func parsePackets(texts []string) ([]rules.Packet, []error) {
	var errs []error
	packets := make([]rules.Packet, len(texts))
	for i, text := range texts {
		p, err := rules.ParsePacket(text)
		if err != nil {
			errs = append(errs, err)
		}
		packets[i] = p
	}
	return packets, errs
}

// explain runs the command for the packets.
func explain(s *system, p *parameters, packets []rules.Packet) error {
	budget := p.budget.From(time.Now())
	switch {
	case p.podFile != "":
		return s.explainPod(p, packets, budget)
	case p.located != nil && !p.live:
		return s.explainLocated(p, packets, budget)
	}
	ruleset, err := s.rulesetOf(p)
	if err != nil {
		return err
	}
	var deliver func(*rules.Trace)
	if p.live {
		deliver = func(trace *rules.Trace) { s.setDelivery(p, trace) }
		for i := range packets {
			s.warnOfRoute(p, &packets[i])
		}
	}
	text, traces := s.explainPackets(ruleset, packets, budget, deliver)
	return s.print(text, explanation{traces})
}
