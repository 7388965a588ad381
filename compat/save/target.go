package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// readTarget reads "-j TARGET" or "-g CHAIN". A target goes before a chain of the same name, as in iptables.
func (r *ruleReader) readTarget(at word, not bool) {
	r.never(at, not)
	r.once(at, givenTarget)
	isGoto := at.raw == "-g" || at.raw == "--goto"
	name := r.next("a target or a chain")
	k := kindOf(targets, name.text)
	_, isChain := r.chains[name.text]
	switch {
	case k != nil && !isGoto:
	case isChain:
		jump := rules.Jump{Chain: name.text, Goto: isGoto}
		k = &kind{target: func(*moduleReader) rules.Action { return jump }}
	case isGoto:
		r.fail(name, "a chain of table %s", r.table().Name)
		return
	case !isChainName(name.text):
		r.fail(name, "a target or a chain")
		return
	default:
		k = &openTarget
	}
	r.target = &module{kind: k, at: name, words: append(make([]word, 0, 6), at, name)}
	r.modules = append(r.modules, r.target)
}

// action returns what the rule's target does, nil if it has none or nothing is done to the packet.
func (r *ruleReader) action() rules.Action {
	if r.target == nil {
		return nil
	}
	mr := moduleReader{ruleReader: r, module: r.target}
	for _, o := range r.target.options {
		r.never(o.at, o.not)
	}
	a := r.target.target(&mr)
	if mr.unknown {
		return rules.Unknown{Text: rawText(r.target.words)}
	}
	return a
}

// only returns the one option that a target must have. Others beside it that are allowed are known, but have no word in the model.
func (r *moduleReader) only(names ...string) *option {
	var found *option
	for _, name := range names {
		if o := r.option(name); o != nil && found == nil {
			found = o
		} else if o != nil {
			r.fail(o.at, "no second option beside %s", found.name)
		}
	}
	if found == nil {
		r.fail(r.at, "one of %s behind it", strings.Join(names, ", "))
	}
	return found
}

// setMark reads the target MARK: the mark loses the bits of a mask and is then xored with a value.
func (r *moduleReader) setMark() rules.Action {
	o := r.only("--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark")
	if o == nil {
		return nil
	}
	value, mask := r.mark(o.values[0])
	if strings.Contains(o.values[0].text, "/") && o.name != "--set-xmark" && o.name != "--set-mark" {
		r.fail(o.values[0], "bits without a mask")
	}
	switch o.name {
	case "--set-mark":
		mask |= value
	case "--and-mark":
		value, mask = 0, ^value
	case "--or-mark":
		mask = value
	case "--xor-mark":
		mask = 0
	}
	r.unknown = value&^mask != 0 // bits are flipped
	return rules.SetMark{Value: value, Mask: mask}
}

// connmark reads the target CONNMARK, of which the model has the two that copy all bits.
func (r *moduleReader) connmark() rules.Action {
	o := r.only("--save-mark", "--restore-mark", "--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark")
	if o == nil {
		return nil
	}
	for _, other := range r.options {
		switch other.name {
		case "--nfmask", "--ctmask", "--mask":
			bits, ok := number(other.values[0].text, 32)
			if !ok {
				r.fail(other.values[0], "bits of 32")
			}
			r.unknown = r.unknown || uint32(bits) != allBits
		case "--left-shift-mark", "--right-shift-mark":
			r.unknown = true
		case "--save-mark", "--restore-mark":
		default:
			r.mark(other.values[0])
			r.unknown = true
		}
	}
	if o.name == "--restore-mark" {
		return rules.RestoreMark{}
	}
	return rules.SaveMark{}
}

const allBits = ^uint32(0)

// zone reads the target CT. Without an option it puts packets into zone 0.
func (r *moduleReader) zone() rules.Action {
	for _, o := range r.options {
		if o.name != "--zone" {
			r.unknown = true
			return nil
		}
	}
	o := r.option("--zone")
	if o == nil {
		return rules.SetZone{}
	}
	w := o.values[0]
	if w.is("mark") {
		r.unknown = true
		return nil
	}
	n, ok := number(w.text, 16)
	if !ok {
		r.fail(w, "a conntrack zone (0-65535)")
	}
	return rules.SetZone{Zone: uint16(n)}
}

// tproxy reads the target TPROXY. The model has it for sockets on any address and on a port other than the packet's own.
func (r *moduleReader) tproxy() rules.Action {
	o := r.required("--on-port")
	if o == nil {
		return nil
	}
	a := rules.TProxyDrop{Port: r.port(o.values[0], o.values[0].text)}
	if mark := r.option("--tproxy-mark"); mark != nil {
		a.Value, a.Mask = r.mark(mark.values[0])
	}
	r.unknown = r.unknown || a.Port == 0 || a.Value&^a.Mask != 0
	if ip := r.option("--on-ip"); ip != nil {
		address, ok := r.address(ip.values[0].text)
		if !ok {
			r.fail(ip.values[0], "%s", r.wantAddress())
		}
		r.unknown = r.unknown || !address.IsUnspecified()
	}
	return a
}

// redirect reads the target REDIRECT, of which the model has the one to a single port.
func (r *moduleReader) redirect() rules.Action {
	o := r.option("--to-ports")
	if o == nil || len(r.options) > 1 {
		r.unknown = true
		return nil
	}
	return rules.RedirectTo{Port: r.singlePort(o.values[0], o.values[0].text)}
}

// singlePort reads a port, or a range "FIRST-LAST" of one; port 0 is the connection's own.
func (r *moduleReader) singlePort(w word, text string) uint16 {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange || isName(text) {
		last, first = text, text
	}
	a, b := r.port(w, first), r.port(w, last)
	if a > b && !r.unknown {
		r.fail(w, "a port or an ascending range of ports")
	}
	r.unknown = r.unknown || a != b || a == 0
	return a
}

// dnat reads the target DNAT, of which the model has the one to another port of the same address.
func (r *moduleReader) dnat() rules.Action {
	o := r.required("--to-destination")
	if o == nil {
		return nil
	}
	w := o.values[0]
	port, ok := strings.CutPrefix(w.text, ":")
	if !ok || len(r.options) > 1 {
		r.unknown = true
		return nil
	}
	return rules.DNATPort{Port: r.singlePort(w, port)}
}
