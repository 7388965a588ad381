package main

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// TestJSONOfMatchesAndActions covers each match and each action that the topic json lists.
func TestJSONOfMatchesAndActions(t *testing.T) {
	prefix := []netipx.IPRange{netipx.RangeOfPrefix(netip.MustParsePrefix("10.0.0.0/8"))}
	notAPrefix := []netipx.IPRange{netipx.MustParseIPRange("10.0.0.1-10.0.0.6")}
	for _, test := range []struct {
		match rules.Match
		want  string
	}{
		{
			rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "lo"}}},
			`"match":"interface","of":"out","values":["lo"]`,
		},
		{
			rules.MatchInterface{
				Not: true, Names: []rules.InterfaceName{{Name: "e", Prefix: true}},
			},
			`"of":"in","not":true,"values":["e*"]`,
		},
		{rules.MatchFamily{Family: rules.IPv6}, `"match":"family","values":["ip6"]`},
		{
			rules.MatchAddr{Side: rules.Destination, Ranges: prefix},
			`"match":"address","of":"destination","values":["10.0.0.0/8"]`,
		},
		{rules.MatchAddr{Ranges: notAPrefix}, `"of":"source","values":["10.0.0.1-10.0.0.6"]`},
		{rules.MatchAddr{Ranges: prefix, Set: "x"}, `"of":"source","set":"x"`},
		{
			rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP, 99}},
			`"match":"protocol","values":["tcp","99"]`,
		},
		{
			rules.MatchPort{Ports: []rules.PortRange{{First: 80, Last: 90}}},
			`"match":"port","of":"source","values":["80-90"]`,
		},
		{
			rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN},
			`"match":"tcp-flags","values":["syn"],"mask":"syn | ack"`,
		},
		{
			rules.MatchOwner{Group: true, IDs: rules.Singles[uint32](7)},
			`"match":"owner","of":"group","values":["7"]`,
		},
		{rules.CgroupOf("kubepods/pod1"), `"match":"cgroup","values":["kubepods/pod1"]`},
		{
			rules.MatchMark{Value: 0x539, Mask: ^uint32(0)},
			`"match":"mark","of":"packet","values":["0x539"],"mask":"0xffffffff"`,
		},
		{rules.MatchMark{Conntrack: true}, `"of":"connection"`},
		{
			rules.MatchState{States: rules.States(rules.Invalid)},
			`"match":"state","values":["invalid"]`,
		},
		{rules.Unknown{Text: "meter x"}, `"match":"unknown","text":"unknown(meter x)"`},
	} {
		wantJSON(t, jsonMatchOf(test.match), test.want)
	}
	for _, test := range []struct {
		action rules.Action
		want   string
	}{
		{rules.Accept, `"action":"accept"`},
		{rules.Drop, `"action":"drop"`},
		{rules.Return, `"action":"return"`},
		{rules.Jump{Chain: "c"}, `"action":"jump","chain":"c"`},
		{rules.Jump{Chain: "c", Goto: true}, `"action":"goto","chain":"c"`},
		{rules.RedirectTo{Port: 15001}, `"action":"redirect","port":15001`},
		{rules.DNATPort{Port: 15053}, `"action":"dnat","port":15053`},
		{rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}, `"action":"dnat","port":80`},
		{rules.SNATTo{Addr: netip.MustParseAddr("10.0.0.1")}, `"action":"snat"`},
		{rules.TProxy{Port: 15006}, `"action":"tproxy","port":15006`},
		{
			rules.TProxyDrop{Port: 15006, Value: 1, Mask: 2},
			`"action":"tproxy-or-drop","port":15006,"value":"0x1","mask":"0x2"`,
		},
		{rules.SetMark{Value: 0, Mask: 3}, `"action":"set-mark","value":"0x0","mask":"0x3"`},
		{rules.SaveMark{}, `"action":"save-mark"`},
		{rules.RestoreMark{}, `"action":"restore-mark"`},
		{rules.SetZone{Zone: 2}, `"action":"set-zone","zone":2`},
		{rules.Count{}, `"action":"count"`},
		{rules.NoEffect{Text: "log"}, `"action":"no-effect","text":"log"`},
		{rules.Unknown{Text: "log"}, `"action":"unknown","text":"unknown(log)"`},
	} {
		wantJSON(t, jsonActionOf(test.action), test.want)
	}
}

// wantJSON requires that the JSON form of the value contains a text.
func wantJSON(t *testing.T, value any, want string) {
	t.Helper()
	b := new(strings.Builder)
	if err := json.NewEncoder(b).Encode(value); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), want) {
		t.Errorf("got %s, want it to contain %s", b, want)
	}
}

// TestCompiledRulesHaveJSON verifies that no match or action of Compile is "unknown" in JSON.
func TestCompiledRulesHaveJSON(t *testing.T) {
	r := rules.DefaultRedirect()
	r.Mode, r.DNS = rules.ModeTProxy, rules.DNS{Capture: true, All: true}
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6 = true, true, true
	r.DropInvalid, r.KeepEstablished = true, true
	text, err := json.Marshal(jsonRulesetOf(rules.MustCompile(r)))
	if err != nil || strings.Contains(string(text), `"unknown"`) {
		t.Errorf("error %v, want no match or action \"unknown\" in %s", err, text)
	}
}

// TestJSONHelpNamesEveryField verifies that the topic json names each field of every document.
func TestJSONHelpNamesEveryField(t *testing.T) {
	var fields func(typ reflect.Type)
	seen := map[reflect.Type]bool{}
	fields = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !regexp.MustCompile(`\b`+name+`\b`).MatchString(helpPage("json")) {
				t.Errorf("the topic json does not name the field %s of %s", name, typ)
			}
			fields(typ.Field(i).Type)
		}
	}
	for d := range documents() {
		fields(reflect.TypeOf(d))
	}
}
