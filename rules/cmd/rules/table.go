package main

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules"
)

// table lists all parameters.
func table() []parameter { return slices.Concat(captureTable(), otherTable(), diffTable()) }

// otherTable lists the parameters that are Sluice's own, and those of istio-iptables that say what to do.
func otherTable() []parameter {
	return []parameter{
		{
			flag: "nameserver", value: "ADDRESS", repeat: true, field: "DNS.Servers", section: sectionDNS,
			help: "a nameserver of the pod; without any those of /etc/resolv.conf, and none there turns the capture of DNS off",
			set:  (*parameters).addNameserver,
		},
		{
			flag: "pod-ip", value: "ADDRESS", repeat: true, section: sectionPod,
			help: "an address of the pod",
			set:  (*parameters).addPodIP,
		},
		{
			flag: "strict-istio", section: sectionSluice,
			help: "treat every packet as istio-init does: turns all deviations off (see rules help deviations)",
			set:  truth(func(p *parameters) *bool { return &p.strictIstio }),
		},
		{
			flag: "without", value: "DEVIATION", repeat: true, field: "Without", section: sectionSluice,
			help: "turn one deviation off",
			set:  (*parameters).addWithout,
		},
		{
			flag: "keep-established", section: sectionSluice,
			help: "leave connections alone that are older than the rules; for live pods only, since a connection that conntrack " +
				"forgets passes the proxy too",
			set: redirect(rules.ParseBool, func(r *rules.Redirect) *bool { return &r.KeepEstablished }),
		},
		{
			flag: "netns", value: "PATH", section: sectionNamespace,
			help: "the network namespace, such as /run/netns/x or /proc/PID/ns/net; without any the current one",
			set:  (*parameters).setNetns,
		},
		{
			flag: "pid", value: "PID", section: sectionNamespace,
			help: "the network namespace of this process",
			set:  (*parameters).setPID,
		},
		{
			flag: "network-namespace", variables: []string{"NETWORK_NAMESPACE"}, value: "PATH", section: sectionNamespace,
			help: "the same as --netns, which outranks it; istio-iptables does not enter it",
			set:  word(func(p *parameters) *string { return &p.networkNamespace }),
		},
		{
			flag: "dry-run", short: "n", variables: []string{"DRY_RUN"}, section: sectionDryRun,
			help: "print what would be done, and touch nothing",
			set:  truth(func(p *parameters) *bool { return &p.dryRun }),
		},
		{
			flag: "cleanup-only", variables: []string{"CLEANUP_ONLY"}, section: sectionAction,
			help: "do what rules cleanup does",
			set:  truth(func(p *parameters) *bool { return &p.cleanupOnly }),
		},
		{
			flag: "skip-rule-apply", variables: []string{"SKIP_RULE_APPLY"}, section: sectionAction,
			help: "leave the rules alone; with --run-validation: only validate",
			set:  truth(func(p *parameters) *bool { return &p.skipApply }),
		},
		{
			flag: "run-validation", variables: []string{"RUN_VALIDATION"}, section: sectionAction,
			help: "then do what rules validate does; with --dry-run nothing",
			set:  truth(func(p *parameters) *bool { return &p.runValidation }),
		},
		{
			flag: "iptables-probe-port", variables: []string{"IPTABLES_PROBE_PORT"}, value: "PORT", fallback: "15002",
			section: sectionProbe,
			help:    "the port that the validation connects to",
			set:     func(p *parameters, text string) error { return assign(&p.probePort)(rules.ParsePort(text)) },
		},
		{
			flag: "probe-timeout", variables: []string{"PROBE_TIMEOUT"}, value: "DURATION", fallback: "5s",
			section: sectionProbe,
			help:    "how long the validation tries",
			set:     (*parameters).setProbeTimeout,
		},
		{
			flag: "output", short: "o", value: "text|json", fallback: outputText, section: sectionOutput,
			help: "the form of results, warnings and errors (see rules help json)",
			set:  choice(func(p *parameters) *string { return &p.output }, outputText, outputJSON),
		},
		{
			flag: "format", value: "nft|iptables|json", fallback: formatNFT, section: sectionShow,
			help: "nft prints what nft -f loads; iptables what iptables-legacy-restore and ip6tables-legacy-restore load, with a comment " +
				"before each family; json is the same as --output json",
			set: choice(func(p *parameters) *string { return &p.format }, formatNFT, formatIPTables, formatJSON),
		},
		{
			flag: "backend", variables: []string{"BACKEND"}, value: "auto|nft|legacy", fallback: string(compat.EngineAuto),
			section: sectionBackend,
			help: "the part of the kernel that has the rules: nft is nf_tables, legacy are the tables of iptables-legacy, auto the first " +
				"of the two that the kernel supports; to look and to remove, auto is also where rules of ours are",
			set: choice(func(p *parameters) *string { return &p.backend },
				string(compat.EngineAuto), string(compat.EngineNFT), string(compat.EngineLegacy)),
		},
		{
			flag: "live", section: sectionExplain,
			help: "explain what the kernel holds in the namespace, of every owner, at the hooks prerouting and output, instead of " +
				"what the parameters mean; also without this flag if --netns or --pid and no parameter is given",
			set: truth(func(p *parameters) *bool { return &p.live }),
		},
		{
			flag: "pod", value: "NAMESPACE/NAME", section: sectionAgent,
			help: "a pod of this node: the node agent, in whose container this works, knows its network namespace and says how it " +
				"should be redirected; no parameter of that has a place beside it. For rules explain also a pod's YAML or JSON " +
				"file, of which no agent is asked; - is the standard input",
			set: (*parameters).setPod,
		},
		{
			flag: "config", value: "FILE", section: sectionExplain,
			help: "beside --pod with a file: the CNI plugin's configuration, whose exclusions, selectors and names of containers count " +
				"then; a network configuration list (.conflist), or the plugin's object of one. Where a selector asks for the labels of " +
				"the pod's namespace, that may be in the pod's file too",
			set: word(func(p *parameters) *string { return &p.config }),
		},
		{
			flag: "cni-agent-run-dir", variables: []string{"CNI_AGENT_RUN_DIR"}, value: "PATH", fallback: config.DefaultRunDir,
			section: sectionAgent,
			help:    "the directory that plugin and node agent share, where the agent's socket is",
			set:     (*parameters).setRunDir,
		},
		{
			flag: "istio", section: sectionCleanup,
			help: "remove also what istio-iptables (by iptables-nft or iptables-legacy) and istio-nftables have left",
			set:  truth(func(p *parameters) *bool { return &p.istio }),
		},
		ignored("force-apply", "FORCE_APPLY", "", "rules that are in place already are never a failure"),
		ignored("reconcile", "RECONCILE", "", "drifted rules are always replaced, in one transaction"),
		ignored("native-nftables", "NATIVE_NFTABLES", "", "no binary is executed; see --backend"),
		{
			flag: "force-iptables-binary", variables: []string{"FORCE_IPTABLES_BINARY"}, value: "legacy|nft",
			section: sectionIgnored,
			help:    "no binary is executed; see --backend",
			set:     choice(func(*parameters) *string { return new(string) }, "", "legacy", "nft"),
		},
		ignored("cni-mode", "CNI_MODE", "", "the only lock is one in the network namespace itself, and no sandbox is entered"),
		ignored("log_output_level", "", "LEVELS", "there is no log"),
		ignored("log_as_json", "", "", "see --output json"),
		ignored("log_target", "", "PATH", "there is no log"),
		ignored("log_stacktrace_level", "", "LEVELS", "there is no log"),
		ignored("log_caller", "", "SCOPES", "there is no log"),
	}
}

// ignored is a parameter of istio-iptables that has no meaning here. A truth value (no placeholder) is checked nevertheless.
func ignored(flag, variable, value, why string) parameter {
	p := parameter{flag: flag, value: value, help: why, section: sectionIgnored}
	if variable != "" {
		p.variables = []string{variable}
	}
	p.set = func(*parameters, string) error { return nil }
	if value == "" {
		p.set = truth(func(*parameters) *bool { return new(bool) })
	}
	return p
}
