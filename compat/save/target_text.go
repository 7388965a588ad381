package save

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses targets that the model does not represent. Package xt returns the same text for
// the same target in the kernel.

// queueText returns the text of the target NFQUEUE.
func (r *moduleReader) queueText() (text string, ok bool) {
	first, last, isRange := strings.Cut(r.optionValue("--queue-balance", ""), ":")
	firstQueue, ok := number(first, 16)
	lastQueue, lastValid := number(last, 16)
	if single := r.option("--queue-num"); r.option("--queue-balance") == nil {
		firstQueue, ok = 0, true
		if single != nil {
			firstQueue, ok = r.numberOption("--queue-num", 16)
		}
		lastQueue, lastValid = firstQueue, true
	} else {
		ok = ok && isRange && single == nil
	}
	q := xt.Queue{
		First: uint16(firstQueue), Last: uint16(lastQueue),
		Bypass:    r.option("--queue-bypass") != nil,
		CPUFanout: r.option("--queue-cpu-fanout") != nil,
	}
	return q.String(), ok && lastValid && q.First <= q.Last
}

// teeText returns the text of the target TEE.
func (r *moduleReader) teeText() (text string, ok bool) {
	gateway, ok := r.address(r.optionValue("--gateway", ""))
	device := r.optionValue("--oif", "")
	return xt.TEEText(gateway, device), ok && len(device) < 16
}

// netmapText returns the text of the target NETMAP.
func (r *moduleReader) netmapText() (text string, ok bool) {
	address, mask, hasMask := strings.Cut(r.optionValue("--to", ""), "/")
	a, ok := r.address(address)
	bits, maskValid := a.BitLen(), true
	if hasMask {
		bits, maskValid = r.maskBits(mask, bits)
	}
	return xt.NETMAPText(netip.PrefixFrom(a, bits)), ok && maskValid && bits >= 0
}

// setUnknownConntrack records that the target CT is unknown, and its text if all options are known.
func (r *moduleReader) setUnknownConntrack() {
	c, zones, ok := xt.ConntrackTarget{}, 0, true
	for _, o := range r.options {
		value, valid := o.values[0].text, true
		switch o.name {
		case "--zone", "--zone-orig", "--zone-reply":
			zones++
			c.ZoneFlags = map[string]uint16{
				"--zone-orig": xt.ZoneOriginal, "--zone-reply": xt.ZoneReply,
			}[o.name]
			var n uint64
			if value == "mark" {
				c.ZoneFlags |= xt.ZoneFromMark
			} else {
				n, valid = number(value, 16)
			}
			c.Zone = uint16(n)
		case "--ctevents":
			c.Events, valid = nameBits(value, xt.ConntrackEvents[:])
		case "--expevents":
			c.ExpectationEvents, valid = nameBits(value, xt.ExpectationEvents[:])
		case "--helper":
			c.Helper, valid = value, len(value) < 16
		case "--timeout":
			c.Timeout, valid = value, len(value) < 32
		default:
			valid = false
		}
		ok = ok && valid
	}
	r.isUnknown = true
	if ok && zones <= 1 {
		r.text = c.String()
	}
}

// nameBits parses names separated by commas, and returns a bit for each name: bit i for names[i].
func nameBits(text string, names []string) (bits uint32, ok bool) {
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return 0, false
		}
		bits |= 1 << i
	}
	return bits, true
}

// targetSet parses the target SET. With --map-set, the effect remains AnyEffect, because the
// element of the set determines mark, priority and queue of the packet.
func (r *moduleReader) targetSet() rules.Action {
	r.isUnknown, r.state = true, xt.StateOfSets
	if r.option("--map-set") == nil {
		r.effect = rules.Writes
	}
	return nil
}

// targetRateest parses the target RATEEST, which measures a rate.
func (r *moduleReader) targetRateest() rules.Action {
	r.isUnknown, r.effect, r.state = true, rules.Writes, xt.StateOfRates
	return nil
}
