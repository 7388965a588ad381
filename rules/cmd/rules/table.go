package main

import (
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules"
)

// allParameters lists all parameters.
func allParameters() []parameter {
	return slices.Concat(captureTable(), ambientTable(), sluiceTable(), otherTable(), packetTable(),
		diffTable(), liveTraceTable(), budgetTable())
}

// otherTable lists parameters that are not parameters of a redirection.
func otherTable() []parameter {
	return []parameter{
		{
			flag: "netns", value: "PATH|NAME", section: sectionNamespace,
			help: "network namespace: a path such as /proc/PID/ns/net, or a name of ip netns; " +
				"by default the current namespace",
			set: (*parameters).setNetns,
		},
		{
			flag: "pid", value: "PID", section: sectionNamespace,
			help: "network namespace of this process",
			set:  (*parameters).setPID,
		},
		{
			flag: "network-namespace", variables: []string{"NETWORK_NAMESPACE"}, value: "PATH",
			section: sectionNamespace,
			help: "the same as --netns; --netns and --pid override it; " +
				"istio-iptables does not enter this namespace",
			set: setText(func(p *parameters) *string { return &p.networkNamespace }),
		},
		{
			flag: "dry-run", short: "n", variables: []string{"DRY_RUN"}, section: sectionDryRun,
			help: "print the changes without making them",
			set:  setBool(func(p *parameters) *bool { return &p.dryRun }),
		},
		boolParameter(sectionAction, "cleanup-only", "CLEANUP_ONLY", "run rules cleanup",
			func(p *parameters) *bool { return &p.cleanupOnly }),
		boolParameter(sectionAction, "skip-rule-apply", "SKIP_RULE_APPLY",
			"do not write rules; with --run-validation: only validate",
			func(p *parameters) *bool { return &p.skipApply }),
		boolParameter(sectionAction, "run-validation", "RUN_VALIDATION",
			"then run rules validate; ignored with --dry-run",
			func(p *parameters) *bool { return &p.runValidation }),
		{
			flag: "iptables-probe-port", variables: []string{"IPTABLES_PROBE_PORT"}, value: "PORT",
			fallback: "15002",
			section:  sectionProbe,
			help:     "port that the validation connects to",
			set: func(p *parameters, text string) error {
				return assign(&p.probePort)(rules.ParsePort(text))
			},
		},
		{
			flag: "probe-timeout", variables: []string{"PROBE_TIMEOUT"}, value: "DURATION",
			fallback: "5s",
			section:  sectionProbe,
			help:     "time limit of the validation",
			set: setDuration(func(p *parameters) *time.Duration { return &p.probeTimeout },
				"5s or 500ms"),
		},
		{
			flag: "output", short: "o", value: "text|json", fallback: outputText,
			section: sectionOutput,
			help:    "format of results, warnings and errors (see rules help json)",
			set: choice(func(p *parameters) *string { return &p.output },
				outputText, outputJSON),
		},
		{
			flag: "format", value: "nft|iptables|json", fallback: formatNFT, section: sectionShow,
			help: "nft: input of nft -f, the default without --live; " +
				"iptables: input of iptables-legacy-restore and ip6tables-legacy-restore, " +
				"with a comment before each family; json: the same as --output json",
			set: choice(func(p *parameters) *string { return &p.format },
				formatNFT, formatIPTables, formatJSON),
		},
		boolParameter(sectionShow, "exact", "",
			"with --live: print counters as exact numbers instead of K, M, G and T",
			func(p *parameters) *bool { return &p.exact }),
		{
			flag: "watch", value: "INTERVAL", section: sectionShow,
			help: "with --live: print the rules again at each interval, such as 2s, " +
				"with the packets per second of each rule, until Ctrl-C",
			set: (*parameters).setWatch,
		},
		boolParameter(sectionLive, "live", "",
			"use the kernel's rules in the namespace, of all owners, instead of the "+
				"parameters; in rules explain implied by --netns or --pid without a parameter",
			func(p *parameters) *bool { return &p.live }),
		{
			flag: "pod", value: "NAMESPACE/NAME", section: sectionAgent,
			help: "pod of this node; the node agent provides its network namespace and " +
				"parameters. Works only in the agent's container, and cannot be combined with " +
				"parameters of the redirection. In rules explain also a YAML or JSON file with a " +
				"pod or a workload, which needs no agent; - is standard input",
			set: (*parameters).setPod,
		},
		boolParameter(sectionNode, "node", "",
			"the network namespace of this node, with the rules for probes of pods in "+
				"ambient mode; the node agent provides them. Works only in the agent's "+
				"container, and cannot be combined with parameters of the redirection",
			func(p *parameters) *bool { return &p.node }),
		{
			flag: "config", value: "FILE", section: sectionExplain,
			help: "with --pod FILE: configuration of the CNI plugin, for its exclusions, " +
				"selectors and container names; a network configuration list (.conflist), or the " +
				"plugin's object of such a list. If a selector needs the labels of the pod's " +
				"namespace, the file of --pod can also contain the namespace",
			set: func(p *parameters, text string) error {
				p.config = text
				return checkFile(text)
			},
		},
		{
			flag: "cni-agent-run-dir", variables: []string{"CNI_AGENT_RUN_DIR"}, value: "PATH",
			fallback: config.DefaultRunDir,
			section:  sectionRunDir,
			help:     "directory that plugin and node agent share, with the socket of the agent",
			set:      (*parameters).setRunDir,
		},
		boolParameter(sectionCleanup, "istio", "",
			"also remove the rules and routes of istio-iptables (iptables-nft and "+
				"iptables-legacy) and istio-nftables",
			func(p *parameters) *bool { return &p.istio }),
		ignoredParameter("force-apply", "FORCE_APPLY", "",
			"rules that are already in place are never an error"),
		ignoredParameter("reconcile", "RECONCILE", "",
			"drifted rules are always replaced, in one transaction"),
		ignoredParameter("native-nftables", "NATIVE_NFTABLES", "",
			"no binary is executed; see --backend"),
		{
			flag: "force-iptables-binary", variables: []string{"FORCE_IPTABLES_BINARY"},
			value:   "legacy|nft",
			section: sectionIgnored,
			help:    "no binary is executed; see --backend",
			set:     choice(func(*parameters) *string { return new(string) }, "", "legacy", "nft"),
		},
		ignoredParameter("cni-mode", "CNI_MODE", "",
			"the only lock is in the network namespace itself, and no sandbox is entered"),
		ignoredParameter("log_output_level", "", "LEVELS", "there is no log"),
		ignoredParameter("log_as_json", "", "", "see --output json"),
		ignoredParameter("log_target", "", "PATH", "there is no log"),
		ignoredParameter("log_stacktrace_level", "", "LEVELS", "there is no log"),
		ignoredParameter("log_caller", "", "SCOPES", "there is no log"),
	}
}

// boolParameter returns a Boolean parameter. variable is its environment variable, or empty.
func boolParameter(
	in section, flag, variable, help string, field func(*parameters) *bool,
) parameter {
	p := parameter{flag: flag, section: in, help: help, set: setBool(field)}
	if variable != "" {
		p.variables = []string{variable}
	}
	return p
}

// ignoredParameter returns a parameter of istio-iptables that has no effect in this program. The
// value of a Boolean, which has no placeholder, is validated nevertheless.
func ignoredParameter(flag, variable, value, reason string) parameter {
	p := boolParameter(sectionIgnored, flag, variable, reason,
		func(*parameters) *bool { return new(bool) })
	if p.value = value; value != "" {
		p.set = func(*parameters, string) error { return nil }
	}
	return p
}
