package xt

import (
	"fmt"
	"math"
)

// This file describes the matches limit and statistic, which depend on earlier packets or on random
// numbers. The text identifies the match, and is the same for a match from the kernel and from
// iptables-save.

// A Limit is the match limit (struct xt_rateinfo).
type Limit struct {
	Average uint32 // the time between two packets in units of 100 µs
	Burst   uint32
}

// A limitUnit is the unit of a rate.
type limitUnit struct {
	name   string // in iptables
	long   string // in nftables
	length uint32 // in units of 100 µs
}

// limitUnits are the units of a rate that iptables prints.
var limitUnits = [...]limitUnit{
	{"day", "day", 864000000},
	{"hour", "hour", 36000000},
	{"min", "minute", 600000},
	{"sec", "second", 10000},
}

// String returns the text of iptables-save.
func (l Limit) String() string {
	return fmt.Sprintf("-m limit --limit %s --limit-burst %d", rateText(l.Average), l.Burst)
}

// ExpressionText returns the text of the expression of nftables to which iptables-nft converts the
// match (add_nft_limit in iptables/nft.c).
func (l Limit) ExpressionText() string {
	rate, unit := uint32(0), limitUnits[0]
	if l.Average > 0 {
		rate, unit = rateOf(l.Average)
	}
	return fmt.Sprintf("limit rate %d/%s burst %d packets", rate, unit.long, l.Burst)
}

// rateOf returns an average as a number of packets in a unit of time.
func rateOf(average uint32) (rate uint32, unit limitUnit) {
	unit = limitUnits[0]
	for _, shorter := range limitUnits[1:] {
		if average > shorter.length || shorter.length/average < shorter.length%average {
			break
		}
		unit = shorter
	}
	return unit.length / average, unit
}

// rateText returns a rate as iptables-save prints it (print_rate in extensions/libxt_limit.c). It
// appends the average if iptables would read the printed rate as another average.
func rateText(average uint32) string {
	if average == 0 {
		return "0"
	}
	rate, unit := rateOf(average)
	text := fmt.Sprintf("%d/%s", rate, unit.name)
	if rate == 0 || unit.length/rate != average {
		text += fmt.Sprintf(" (%d)", average)
	}
	return text
}

// A Statistic is the match statistic (struct xt_statistic_info).
type Statistic struct {
	Not bool
	// Probability is in units of 2^-31.
	Probability uint32
	// Nth is set if the match matches every nth packet instead of random packets. n is Every, and
	// Packet is the index of the first matching packet.
	Nth           bool
	Every, Packet uint32
}

// probabilityOne is the probability of 1.
const probabilityOne = 1 << 31

// NewProbability returns the match with a probability from 0 to 1.
func NewProbability(not bool, probability float64) Statistic {
	return Statistic{Not: not, Probability: uint32(math.Round(probabilityOne * probability))}
}

// Varies reports whether the match matches some packets and not others (statistic_mt in
// net/netfilter/xt_statistic.c).
func (s Statistic) Varies() bool {
	if s.Nth {
		return s.Every > 1
	}
	return s.Probability > 0 && s.Probability < probabilityOne
}

// String formats the match like iptables-save, with the exact probability.
func (s Statistic) String() string {
	if s.Nth {
		return fmt.Sprintf("-m statistic --mode nth %s--every %d --packet %d", negation(s.Not),
			s.Every, s.Packet)
	}
	return fmt.Sprintf("-m statistic --mode random %s--probability %.11f", negation(s.Not),
		float64(s.Probability)/probabilityOne)
}

// decodeStatistic decodes the mode, the flags, and the probability or the interval minus one.
func decodeStatistic(data []byte) (s Statistic, ok bool) {
	const modeRandom, modeNth, inverted = 0, 1, 1
	if len(data) < 16 {
		return s, false
	}
	value, flags := native.Uint32(data[4:]), native.Uint16(data[2:])
	s.Not = flags&inverted != 0
	switch native.Uint16(data) {
	case modeRandom:
		s.Probability = value
		return s, flags&^inverted == 0
	case modeNth:
		s.Nth, s.Every, s.Packet = true, value+1, native.Uint32(data[8:])
		return s, flags&^inverted == 0 && value < math.MaxUint32
	}
	return s, false
}
