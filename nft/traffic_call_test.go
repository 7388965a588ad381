package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// callTimeout is the timeout of a call for which an answer is expected.
const callTimeout = 20 * time.Second

// A row of a traffic test is a call with the expected answer.
type row struct {
	// call is "CALLER NETWORK DESTINATION [from SOURCE] [mark N]". CALLER is "in" (the neighbor),
	// "machine" (connected to the second interface), or a process in the pod: "app", "root",
	// "proxy" (uid and gid 1337), "rootproxy" (uid 0, gid 1337), or UID:GID. A name in hosts
	// represents an address of each family. A row with such a destination is two calls.
	call string
	// want is a name of package testbed, "silent" or "refused".
	want string
	// tproxy is the expected answer in TPROXY mode, if it differs.
	tproxy string
}

// hosts maps each name to an IPv4 and an IPv6 address.
var hosts = map[string][2]netip.Addr{
	"world":     {netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("2001:db8::9")},
	"world2":    {netip.MustParseAddr("10.9.8.8"), netip.MustParseAddr("2001:db8:8::8")},
	"resolver":  {netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10")},
	"neighbor":  {testbed.NeighborIP4, testbed.NeighborIP6},
	"pod":       {testbed.PodIP4, testbed.PodIP6},
	"lo":        {netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
	"pass":      {rules.PassthroughIPv4(), rules.PassthroughIPv6()},
	"interface": {testbed.InterfaceIP4, testbed.InterfaceIP6},
	"machine":   {testbed.MachineIP4, testbed.MachineIP6},
}

// callers contains the named callers of rows.
var callers = map[string]testbed.Call{
	"in":        {From: testbed.FromNeighbor},
	"machine":   {From: testbed.FromMachine},
	"app":       {Owner: testbed.ApplicationOwner},
	"root":      {},
	"proxy":     {Owner: testbed.ProxyOwner},
	"rootproxy": {Owner: testbed.TProxyOwner},
}

// calls returns the calls of the row: one for each family that its destination can have.
func (r row) calls() []testbed.Call {
	var calls []testbed.Call
	for family := range 2 {
		c, named, err := parseCall(r.call, family)
		if err != nil {
			panic(fmt.Sprintf("row %q: %v", r.call, err))
		}
		calls = append(calls, c)
		if !named {
			break
		}
	}
	return calls
}

// parseCall parses row.call. family selects the IPv4 addresses (0) or the IPv6 addresses (1) of
// names in hosts. named reports whether the destination is such a name.
func parseCall(text string, family int) (c testbed.Call, named bool, err error) {
	words := strings.Fields(text)
	if len(words) < 3 || len(words)%2 == 0 {
		return c, false, errors.New("want CALLER NETWORK DESTINATION [from SOURCE] [mark N]")
	}
	if c, err = parseCaller(words[0]); err != nil {
		return c, false, err
	}
	c.Network = words[1]
	if c.To, named, err = parseAddrPort(words[2], family); err != nil {
		return c, false, err
	}
	if c.To.Addr().Is6() {
		family = 1
	}
	for i := 3; i < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "from":
			c.Local, _, err = parseAddrPort(value, family)
		case "mark":
			c.Mark, err = rules.ParseMark(value)
		default:
			err = fmt.Errorf("%q is not an option", words[i])
		}
		if err != nil {
			return c, false, err
		}
	}
	return c, named, nil
}

func parseCaller(text string) (testbed.Call, error) {
	if c, ok := callers[text]; ok {
		return c, nil
	}
	uid, gid, ok := strings.Cut(text, ":")
	if !ok {
		return testbed.Call{}, fmt.Errorf("%q is not a caller", text)
	}
	u, errU := strconv.ParseUint(uid, 10, 32)
	g, errG := strconv.ParseUint(gid, 10, 32)
	return testbed.Call{Owner: rules.Owner{UID: uint32(u), GID: uint32(g)}}, errors.Join(errU, errG)
}

// parseAddrPort parses a name in hosts or an IP address, followed by a port. family and named are
// as in parseCall.
func parseAddrPort(text string, family int) (a netip.AddrPort, named bool, err error) {
	i := strings.LastIndex(text, ":")
	addrs, named := hosts[text[:max(i, 0)]]
	if !named {
		a, err = netip.ParseAddrPort(text)
		return a, false, err
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	return netip.AddrPortFrom(addrs[family], uint16(port)), true, err
}
