package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// liveTraceParameters contains the parameters that only trace has.
type liveTraceParameters struct {
	filter   trace.Filter
	verbose  bool
	duration time.Duration // 0 means unlimited
	count    int           // 0 means unlimited
	untilEOF bool
}

// liveTraceTable lists the parameters of trace.
func liveTraceTable() []parameter {
	row := func(flag, value, help string, set func(p *parameters, text string) error) parameter {
		return parameter{flag: flag, value: value, section: sectionTrace, help: help, set: set}
	}
	verbose := row("verbose", "", "also print each rule that a packet matched, in order, "+
		"whether a socket listens, and the answer to the connection",
		setBool(func(p *parameters) *bool { return &p.trace.verbose }))
	verbose.short = "v"
	return []parameter{
		row("in", "", "only packets that arrive from another host",
			setBool(func(p *parameters) *bool { return &p.trace.filter.In })),
		row("out", "", "only packets that local processes send",
			setBool(func(p *parameters) *bool { return &p.trace.filter.Out })),
		row("to", "ADDRESS[:PORT]", "only packets to this address, before translation",
			func(p *parameters, text string) error {
				return assign(&p.trace.filter.To)(parseEndpoint(text))
			}),
		row("from", "ADDRESS[:PORT]", "only packets from this address",
			func(p *parameters, text string) error {
				return assign(&p.trace.filter.From)(parseEndpoint(text))
			}),
		row("from-uid", "UID", "only packets of sockets of this user", setFromUID),
		row("port", "PORT", "only packets to this port, before translation",
			func(p *parameters, text string) error {
				return assign(&p.trace.filter.Port)(rules.ParsePort(text))
			}),
		verbose,
		row("for", "DURATION", "end after this time", setDuration(
			func(p *parameters) *time.Duration { return &p.trace.duration }, "30s or 5m")),
		row("count", "NUMBER", "end after this number of packets", setTraceCount),
		row("until-eof", "",
			"end when standard input ends, as when the client of kubectl exec -i exits",
			setBool(func(p *parameters) *bool { return &p.trace.untilEOF })),
	}
}

// setFromUID sets the user of --from-uid.
func setFromUID(p *parameters, text string) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not the number of a user (0 to 4294967295)", text)
	}
	uid := uint32(n)
	p.trace.filter.UID = &uid
	return nil
}

// setTraceCount sets the number of packets of --count.
func setTraceCount(p *parameters, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a number of packets (1 or more)", text)
	}
	p.trace.count = n
	return nil
}

// parseEndpoint parses an address with or without a port.
func parseEndpoint(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a.Unmap(), 0), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Addr().Zone() != "" {
		return a, fmt.Errorf(
			"%q is not an address, such as 10.96.0.1, 10.96.0.1:443 or [fd00::1]:443", text)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// checkTrace rejects arguments, and filters that no packet matches.
func checkTrace(p *parameters, args []string) []error {
	f := p.trace.filter
	var errs []error
	for _, a := range args {
		errs = append(errs, fmt.Errorf(
			"unexpected argument %q: filters are flags, such as --to 10.96.0.1:443", a))
	}
	if f.In && f.Out {
		errs = append(errs, errors.New("--in and --out: give one of them, or neither for both"))
	}
	if f.In && f.UID != nil {
		errs = append(errs,
			errors.New("--from-uid selects outgoing packets: it cannot be combined with --in"))
	}
	if f.To.IsValid() && f.From.IsValid() && f.To.Addr().Is4() != f.From.Addr().Is4() {
		errs = append(errs, errors.New("--from and --to are addresses of different families"))
	}
	if f.Port != 0 && f.To.Port() != 0 && f.Port != f.To.Port() {
		errs = append(errs, errors.New("--port and the port of --to differ"))
	}
	return errs
}
