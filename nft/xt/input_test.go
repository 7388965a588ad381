package xt_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchInputs contains the inputs of the matches that do not depend on all inputs.
var matchInputs = map[string]rules.Inputs{
	"ah": 0, "comment": 0, "cpu": 0, "dscp": 0, "dst": 0, "ecn": 0, "esp": 0, "frag": 0, "hbh": 0,
	"hl": 0, "icmp": 0, "icmp6": 0, "icmpv6": 0, "ipcomp": 0, "ipv6header": 0, "limit": 0,
	"mac": 0, "mh": 0, "rateest": 0, "rt": 0, "srh": 0, "statistic": 0, "tcpmss": 0, "time": 0,
	"tos": 0, "ttl": 0,
	"length": rules.ContentsInput, "quota": rules.ContentsInput,
	"cgroup": rules.HeaderInput, "dccp": rules.HeaderInput, "eui64": rules.HeaderInput,
	"iprange": rules.HeaderInput, "multiport": rules.HeaderInput, "osf": rules.HeaderInput,
	"owner": rules.HeaderInput, "pkttype": rules.HeaderInput, "recent": rules.HeaderInput,
	"sctp": rules.HeaderInput, "tcp": rules.HeaderInput, "udp": rules.HeaderInput,
	"udplite":   rules.HeaderInput,
	"hashlimit": rules.HeaderInput | rules.ContentsInput,
	"l2tp":      rules.HeaderInput | rules.ContentsInput,
	"string":    rules.HeaderInput | rules.ContentsInput,
	"u32":       rules.HeaderInput | rules.ContentsInput,
	"socket":    rules.HeaderInput | rules.ConnectionInput,
	"addrtype":  rules.HeaderInput | rules.InterfaceInput,
	"rpfilter":  rules.HeaderInput | rules.MarkInput,
	"set":       rules.HeaderInput | rules.MarkInput | rules.InterfaceInput,
	"devgroup":  rules.InterfaceInput, "physdev": rules.InterfaceInput,
	"mark": rules.MarkInput, "connmark": rules.ConnectionInput | rules.ConntrackMarkInput,
	"connbytes": rules.ConnectionInput, "connlabel": rules.ConnectionInput,
	"helper": rules.ConnectionInput, "state": rules.ConnectionInput,
	"conntrack": rules.ConnectionInput | rules.StateInput | rules.NATInput,
}

// matchEffects contains the effects of matches. A match that only matchInputs lists has the effect
// Reads. A match in neither map may have any effect.
var matchEffects = map[string]rules.Effect{
	"limit": rules.ReadsVarying, "statistic": rules.ReadsVarying, "quota": rules.ReadsHistory,
	"rateest": rules.ReadsHistory, "set": rules.ReadsHistory, "recent": rules.ReadsHistory,
	"hashlimit": rules.ReadsAndWrites, "nfacct": rules.ReadsAndWrites,
	"bpf": rules.Reads, "ipvs": rules.Reads, "policy": rules.Reads, "realm": rules.Reads,
	"cluster":   rules.AnyEffect, // changes the type of the packet
	"connlimit": rules.AnyEffect, // drops packets that it cannot count
}

// targetsOfKnownEffect contains the targets whose decoded effect is not AnyEffect even if their
// data are invalid, with their newest revisions.
var targetsOfKnownEffect = map[string]uint32{
	"AUDIT": 0, "IDLETIMER": 1, "LED": 0, "LOG": 0, "NFLOG": 0, "TRACE": 0, "ULOG": 0, "RATEEST": 0,
	"MASQUERADE": 0, "SNAT": 2, "NOTRACK": 0,
	"CHECKSUM": 0, "CLASSIFY": 0, "DSCP": 0, "HL": 0, "TCPMSS": 0, "TOS": 1, "TTL": 0,
}

// withKernelExtensions returns the list and the loaded extensions of the running kernel. kind is
// "matches" or "targets".
func withKernelExtensions(t *testing.T, kind string, list []string) []string {
	t.Helper()
	for _, family := range []string{"ip", "ip6"} {
		text, err := os.ReadFile("/proc/net/" + family + "_tables_" + kind)
		if err != nil {
			t.Logf("the test does not cover the %s of this kernel: %v", kind, err)
		}
		list = append(list, strings.Fields(string(text))...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestEveryMatchIsClassified covers the matches of Linux 6.18 and of the running kernel. A match
// that is not listed here may depend on all inputs, and may have any effect.
func TestEveryMatchIsClassified(t *testing.T) {
	list := []string{"fancy"}
	for name := range matchInputs {
		list = append(list, name)
	}
	for name := range matchEffects {
		list = append(list, name)
	}
	for _, name := range withKernelExtensions(t, "matches", list) {
		if name == "comment" {
			continue // not a condition
		}
		// No kernel has revision 9 of a match.
		u := xt.DecodeMatch(&rules.Rule{}, rules.IPv4, xt.Extension{
			Name: name, Revision: 9, Data: make([]byte, 1),
		})[0].(rules.Unknown)
		if u.Effect != rules.AnyEffect {
			t.Errorf("%s revision 9: effect %d, want any effect", name, u.Effect)
		}
		inputs, listed := matchInputs[name]
		if !listed {
			inputs = rules.AllInputs
		}
		if got := rules.AllInputs &^ u.Ignores; got != inputs {
			t.Errorf("%s: depends on %b, want %b", name, got, inputs)
		}
		want, has := matchEffects[name]
		if listed && !has {
			want = rules.Reads
		}
		if got := xt.MatchEffect(name); got != want {
			t.Errorf("%s: effect %d, want %d", name, got, want)
		}
	}
}

// TestEveryTargetIsClassified decodes the targets of Linux 6.18 and of the running kernel from data
// that is invalid for every target. All targets except targetsOfKnownEffect may have any effect.
func TestEveryTargetIsClassified(t *testing.T) {
	list := []string{
		"AUDIT", "CHECKSUM", "CLASSIFY", "CONNMARK", "CONNSECMARK", "CT", "DNAT", "DNPT", "DSCP",
		"ECN", "FANCY", "HL", "HMARK", "IDLETIMER", "LED", "LOG", "MARK", "MASQUERADE", "NETMAP",
		"NFLOG", "NFQUEUE", "NOTRACK", "RATEEST", "REDIRECT", "REJECT", "SECMARK", "SET", "SNAT",
		"SNPT", "SYNPROXY", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TPROXY", "TRACE", "TTL", "ULOG",
	}
	for _, name := range withKernelExtensions(t, "targets", list) {
		for _, revision := range []uint32{0, 1, 2, 3, 4, 9} {
			a := xt.DecodeTarget(rules.IPv4, xt.Extension{
				Name: name, Revision: revision, Data: []byte{0xff},
			})
			u, unknown := a.(rules.Unknown)
			if unknown && u.Effect == rules.AnyEffect {
				continue
			}
			if newest, ok := targetsOfKnownEffect[name]; !ok || revision > newest {
				t.Errorf("%s revision %d: decoded as %s, want an unknown target with any effect",
					name, revision, a)
			}
		}
	}
}
