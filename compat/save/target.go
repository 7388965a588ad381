package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// readTarget parses "-j TARGET" or "-g CHAIN". As in iptables, a target takes precedence over a
// chain with the same name.
func (r *ruleReader) readTarget(flag word, not bool) {
	r.rejectNegation(flag, not)
	r.recordOnce(flag, givenTarget)
	isGoto := flag.raw == "-g" || flag.raw == "--goto"
	name := r.next("a target or a chain")
	k := targetNamed(name.text)
	isChain := r.table().chainByName[name.text] != nil
	switch {
	case k != nil && !isGoto:
	case isChain:
		jump := rules.Jump{Chain: name.text, Goto: isGoto}
		k = &extension{target: func(*moduleReader) rules.Action { return jump }}
	case isGoto:
		r.fail(name, "a chain of table %s", r.table().Name)
		return
	case !isChainName(name.text):
		r.fail(name, "a target or a chain")
		return
	default:
		k = &openTarget
	}
	r.target = &module{extension: k, flag: name, words: append(make([]word, 0, 6), flag, name)}
	r.modules = append(r.modules, r.target)
}

// targetNamed returns the extension of the target with the name, or nil.
func targetNamed(name string) *extension {
	if k := findExtension(targetExtensions, name); k != nil {
		return k
	}
	k := findOpenExtension(openTargets[:], name)
	if k != nil && k.target == nil {
		k.target = openTarget.target
	}
	return k
}

// action returns the action of the rule's target. It returns nil if the rule has no target, or if
// the target does not affect packets.
func (r *ruleReader) action() rules.Action {
	if r.target == nil {
		return nil
	}
	mr := moduleReader{ruleReader: r, module: r.target}
	for _, o := range r.target.options {
		r.rejectNegation(o.flag, o.not)
	}
	a := r.target.target(&mr)
	if mr.isUnknown {
		text, _ := mr.unknownText()
		return rules.Unknown{Text: text, Effect: mr.effect, State: mr.state}
	}
	return a
}

// exactlyOne returns the given option among the names. It reports an error if not exactly one of
// them was given.
func (r *moduleReader) exactlyOne(names ...string) *option {
	var found *option
	for _, name := range names {
		if o := r.option(name); o != nil && found == nil {
			found = o
		} else if o != nil {
			r.fail(o.flag, "no second option beside %s", found.name)
		}
	}
	if found == nil {
		r.fail(r.flag, "one of %s after it", strings.Join(names, ", "))
	}
	return found
}

// conntrackTarget parses the target CT. Without an option the target assigns packets to zone 0.
func (r *moduleReader) conntrackTarget() rules.Action {
	if len(r.options) == 1 && r.options[0].name == "--notrack" {
		return rules.Notrack{}
	}
	a := rules.SetZone{}
	if o := r.option("--helper"); o != nil {
		a.Helper = o.values[0].text
	}
	for _, o := range r.options {
		if o.name != "--zone" && o.name != "--helper" {
			r.isUnknown = true
			return nil
		}
	}
	o := r.option("--zone")
	if o == nil {
		return a
	}
	w := o.values[0]
	if w.is("mark") {
		r.isUnknown = true
		return nil
	}
	n, ok := number(w.text, 16)
	if !ok {
		r.fail(w, "a conntrack zone (0-65535)")
	}
	a.Zone = uint16(n)
	return a
}

// tproxy parses the target TPROXY.
func (r *moduleReader) tproxy() rules.Action {
	o := r.requiredOption("--on-port")
	if o == nil {
		return nil
	}
	a := rules.TProxyDrop{Port: r.port(o.values[0], o.values[0].text)}
	if mark := r.option("--tproxy-mark"); mark != nil {
		a.Value, a.Mask = r.mark(mark.values[0])
	}
	if ip := r.option("--on-ip"); ip != nil {
		address, ok := r.address(ip.values[0].text)
		switch {
		case !ok:
			r.fail(ip.values[0], "%s", r.expectedAddress())
		case !address.IsUnspecified():
			a.Addr = address
		}
	}
	return a
}

// A rejection is a kind of answer of the target REJECT.
type rejection struct {
	name, otherName string // in iptables
	with            string // in nft
}

// rejections returns the answers for packets of a family, the default first.
func rejections(f rules.Family) []rejection {
	reset := rejection{"tcp-reset", "tcp-rst", "tcp reset"}
	if f == rules.IPv6 {
		return []rejection{
			{"icmp6-port-unreachable", "port-unreach", "icmpv6 port-unreachable"},
			{"icmp6-no-route", "no-route", "icmpv6 no-route"},
			{"icmp6-adm-prohibited", "adm-prohibited", "icmpv6 admin-prohibited"},
			{"icmp6-addr-unreachable", "addr-unreach", "icmpv6 addr-unreachable"},
			{"icmp6-policy-fail", "policy-fail", "icmpv6 policy-fail"},
			{"icmp6-reject-route", "reject-route", "icmpv6 reject-route"},
			reset,
		}
	}
	return []rejection{
		{"icmp-port-unreachable", "port-unreach", "icmp port-unreachable"},
		{"icmp-net-unreachable", "net-unreach", "icmp net-unreachable"},
		{"icmp-host-unreachable", "host-unreach", "icmp host-unreachable"},
		{"icmp-proto-unreachable", "proto-unreach", "icmp prot-unreachable"},
		{"icmp-net-prohibited", "net-prohib", "icmp net-prohibited"},
		{"icmp-host-prohibited", "host-prohib", "icmp host-prohibited"},
		{"icmp-admin-prohibited", "admin-prohib", "icmp admin-prohibited"},
		reset,
	}
}

// reject parses the target REJECT. An abbreviated name of an answer is unknown, because it may be
// ambiguous.
func (r *moduleReader) reject() rules.Action {
	known := rejections(r.family)
	o := r.option("--reject-with")
	if o == nil {
		return rules.Reject{With: known[0].with}
	}
	w := o.values[0]
	prefix := strings.ToLower(w.text)
	names := make([]string, len(known))
	for i, k := range known {
		if strings.EqualFold(w.text, k.name) || strings.EqualFold(w.text, k.otherName) {
			return rules.Reject{With: k.with}
		}
		isPrefix := strings.HasPrefix(k.name, prefix) || strings.HasPrefix(k.otherName, prefix)
		r.isUnknown = r.isUnknown || prefix != "" && isPrefix
		names[i] = k.name
	}
	if !r.isUnknown {
		r.fail(w, "an answer: %s", strings.Join(names, ", "))
	}
	return nil
}
