// Package rules is the declarative model of a mesh pod's traffic redirection.
//
// A [Redirect] contains the parameters of a redirection, in Istio's terms. [Compile] turns it into
// a [Ruleset]: tables, chains and rules with typed matches and actions, and the policy routes that
// belong to them. Backends (packages nft and compat) encode a ruleset for the kernel and decode the
// kernel's state into one.
//
//	r := rules.DefaultRedirect()
//	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
//	ruleset, err := rules.Compile(r)
//	if err != nil {
//		return err // Faults: each names the field, the value and what is allowed
//	}
//	fmt.Print(ruleset) // in the syntax of nft
//
// # Parameters
//
// [DefaultRedirect] returns the default parameters. [ParsePorts], [ParsePrefixes],
// [ParseInterfaces] and others parse Istio's notation. [Redirect.Validate] reports all faults at
// once. Each intentional difference between Sluice's and Istio's treatment of packets is one of the
// [Deviations]; [Redirect.Without] contains the disabled ones.
//
// # Rules
//
// A [Table] has [Chain]s, a chain has [Rule]s, and a rule has matches and actions: [MatchPort],
// [MatchAddr], [MatchOwner]; [RedirectTo], [TProxy], [Jump], a [Verdict] and others. [Unknown]
// stands for a condition or an action in a kernel or a file that the model cannot represent.
//
// # Questions about rulesets
//
// [Equal] and [Compare] compare two rulesets rule by rule. Package rules/diff follows a [Packet],
// or all packets, through rulesets, and decides whether two rulesets treat all packets alike. An
// [Outcome] is what a ruleset does to a packet.
//
// The package makes no system call, reads no environment, and knows neither netlink nor the
// formats of iptables. Its functions are safe for concurrent use while the values that they are
// given do not change.
package rules
