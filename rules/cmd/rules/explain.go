package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

const explainHelp = `Tell what happens to packets: the rules that match, hook by hook and chain by chain, and the fate in one sentence.

The ruleset is the one of the parameters, for the pod that rules show assumes. With --live it is what the kernel's nf_tables
and iptables-legacy's tables hold in the namespace, of all owners; --netns or --pid without any flag that shapes the ruleset
means the same.

With --pod it is the one of a pod, as kubectl get pod -o yaml writes it: what the CNI plugin would decide about the pod, by which
reason, and the ruleset that it would program; packets need not be given then. Where the runtime passes annotations, these may decide
earlier and for another reason, which a note then tells. A pod that has no address yet is taken for one with IPv4 alone, unless --pod-ip
gives its addresses. Of a pod of this node (NAMESPACE/NAME) the node agent says so; with --live packets meet what the kernel holds for it.

Followed are the hooks at which traffic is captured, prerouting and output. What chains of others do at input, forward and
postrouting is not seen: a packet whose fate is said to be a redirection may be dropped at input nevertheless.

A packet is one argument:

  %s

Left out, the device is lo for an outgoing packet to a loopback address or to its own source and eth0 otherwise, the user
is 0, the group is equal to the user, the state is new, and the flags of TCP are syn for a new connection and ack
otherwise. no-listener says that no transparent proxy listens.`

const explainExamples = `  rules explain -b '*' -i '*' 'out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000'
  kubectl get pod web -o yaml | rules explain --pod -
  kubectl get pod web -o yaml | rules explain --pod - --config /etc/cni/net.d/10-cluster.conflist
  kubectl exec -n istio-system ds/sluice-node -- rules explain --pod default/web --live 'in tcp 10.244.2.9:51000 > 10.244.1.5:8080'
  rules explain --pid 4711 'in tcp 10.244.2.9:51000 > 10.244.1.5:8080'`

func newExplainCommand(s *system) *cobra.Command {
	in := &inputs{sections: ofCapture(sectionNamespace, sectionAgent, sectionBackend, sectionExplain, sectionOutput), tolerated: actionSections}
	var packets []rules.Packet
	in.check = func(p *parameters, args []string) []error {
		var errs []error
		packets, errs = parsePackets(args)
		if p.config != "" && p.podFile == "" {
			errs = append(errs, errors.New("--config has an effect only beside --pod with a file"))
		}
		if p.podFile != "" {
			return append(errs, in.podConflicts(p)...)
		}
		if p.pod != (podName{}) {
			return append(errs, nothingLive(p, args)...)
		}
		if len(args) == 0 {
			errs = append(errs, errors.New("no packet to explain, such as 'out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000'"))
		}
		shaping := in.givenIn(captureSections)
		p.live = p.live || len(shaping) == 0 && (p.netnsPath != "" || p.pid != 0)
		if p.live {
			for _, name := range shaping {
				errs = append(errs, fmt.Errorf("--live explains what the kernel holds: --%s has no effect on that", name))
			}
		}
		return errs
	}
	cmd := &cobra.Command{
		Use:     "explain [FLAG]... [PACKET]...",
		Short:   "tell what happens to a packet, rule by rule",
		Long:    fmt.Sprintf(explainHelp, strings.Join(wrap(rules.PacketSyntax, helpWidth-2), "\n  ")),
		Example: explainExamples,
	}
	return s.command(cmd, in, func(p *parameters, _ []string) error { return explain(s, p, packets) })
}

// nothingLive refuses to explain no packet by the rules of a running pod.
func nothingLive(p *parameters, args []string) []error {
	if p.live && len(args) == 0 {
		return []error{errors.New("--live: no packet to explain")}
	}
	return nil
}

// givenIn names the flags of the sections that the command line sets.
func (in *inputs) givenIn(sections []section) []string {
	var flags []string
	for _, p := range in.parameters {
		if len(in.given[p.flag]) > 0 && slices.Contains(sections, p.section) {
			flags = append(flags, p.flag)
		}
	}
	return flags
}

func parsePackets(args []string) ([]rules.Packet, []error) {
	var errs []error
	packets := make([]rules.Packet, len(args))
	for i, text := range args {
		p, err := rules.ParsePacket(text)
		if err != nil {
			errs = append(errs, err)
		}
		packets[i] = p
	}
	return packets, errs
}

func explain(s *system, p *parameters, packets []rules.Packet) error {
	switch {
	case p.podFile != "":
		return s.explainPod(p, packets)
	case p.located != nil && !p.live:
		return s.explainLocated(p, packets)
	}
	ruleset, err := s.rulesetToExplain(p)
	if err != nil {
		return err
	}
	text, traces := s.traces(ruleset, packets)
	return s.print(text, map[string]any{"packets": traces})
}
