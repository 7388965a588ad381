package diff

import (
	"reflect"
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// TestDigestsOfMatches changes each field of each match. The digest of the chain must change.
func TestDigestsOfMatches(t *testing.T) {
	digest := func(m rules.Match) string {
		return newRuleWriter(newMeter(Budget{})).chain(&rules.Table{Name: "t"}, &rules.Chain{
			Name: "c", Rules: []rules.Rule{{Matches: []rules.Match{m}}},
		})
	}
	protocols := [2][]rules.Protocol{{rules.TCP}, {rules.UDP}}
	ports := [2][]rules.PortRange{rules.Singles[uint16](1), rules.Singles[uint16](2)}
	numbers := [2][]rules.Range[uint32]{rules.Singles[uint32](1), rules.Singles[uint32](2)}
	addrs := [2][]netipx.IPRange{
		{netipx.MustParseIPRange("10.0.0.0-10.0.0.9")}, {netipx.MustParseIPRange("10.0.0.1-10.0.0.9")},
	}
	owner := rules.MatchOwner{IDs: numbers[0]}
	for _, tc := range []struct {
		match rules.Match
		// changed contains another value of each field that is a list.
		changed map[string]any
	}{
		{
			rules.MatchInterface{Names: []rules.InterfaceName{{Name: "a*"}}},
			map[string]any{"Names": []rules.InterfaceName{{Name: "a", Prefix: true}}},
		},
		{rules.MatchFamily{}, map[string]any{"Family": rules.IPv4}},
		{rules.MatchAddr{Ranges: addrs[0], Set: "s"}, map[string]any{"Ranges": addrs[1]}},
		{rules.MatchAddr{Ranges: addrs[0]}, map[string]any{"Ranges": addrs[1]}},
		{rules.MatchProtocol{Protocols: protocols[0]}, map[string]any{"Protocols": protocols[1]}},
		{rules.MatchPort{Ports: ports[0]}, map[string]any{"Ports": ports[1]}},
		{rules.MatchTCPFlags{}, nil},
		{owner, map[string]any{"IDs": numbers[1]}},
		{rules.MatchCgroup{Path: "a"}, nil},
		{rules.MatchState{}, nil},
		{rules.MatchStatus{}, nil},
		{rules.MatchDirection{}, nil},
		{rules.MatchMark{}, nil},
		{rules.MatchMarkRange{Values: numbers[0]}, map[string]any{"Values": numbers[1]}},
		{rules.MatchAddrType{}, nil},
		{rules.MatchReversePath{}, nil},
		{rules.MatchSocket{}, nil},
		{rules.MatchListed{}, nil},
		{rules.MatchICMP{Values: ports[0]}, map[string]any{"Values": ports[1]}},
		{rules.Unknown{}, nil},
		{
			rules.MatchTuple{Alternatives: [][]rules.Match{{owner}}},
			map[string]any{"Alternatives": [][]rules.Match{{rules.MatchOwner{
				IDs: numbers[0], Socketless: true,
			}}}},
		},
	} {
		original := digest(tc.match)
		for i := range reflect.TypeOf(tc.match).NumField() {
			changed := reflect.New(reflect.TypeOf(tc.match)).Elem()
			changed.Set(reflect.ValueOf(tc.match))
			name, field := changed.Type().Field(i).Name, changed.Field(i)
			switch value, ok := tc.changed[name]; {
			case ok:
				field.Set(reflect.ValueOf(value))
			case field.Kind() == reflect.Bool:
				field.SetBool(!field.Bool())
			case field.Kind() == reflect.String:
				field.SetString(field.String() + "x")
			default:
				field.SetUint(field.Uint() + 1)
			}
			m := changed.Interface().(rules.Match)
			if digest(m) == original {
				t.Errorf("%#v: the digest does not depend on %s", tc.match, name)
			}
		}
	}
}
