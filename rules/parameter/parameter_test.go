package parameter_test

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// sample returns a valid value of the kind that differs from every default.
func sample(k parameter.Kind) string {
	switch k {
	case parameter.Port, parameter.OptionalPort, parameter.Mark, parameter.IDs,
		parameter.GroupSelection:
		return "4242"
	case parameter.Ports, parameter.PortSelection:
		return "4242,4343"
	case parameter.Prefixes, parameter.PrefixSelection:
		return "10.1.0.0/16,fd00::/8"
	case parameter.LoopbackPrefix:
		return "127.0.0.0/8"
	case parameter.Interfaces:
		return "net1,net2"
	case parameter.Mode:
		return "TPROXY"
	case parameter.Bool:
		return "true"
	}
	return "somebody"
}

// faulty returns an invalid value of the kind, and the invalid elements of the value. It returns no
// elements for a kind without invalid values.
func faulty(k parameter.Kind) (text string, invalid []string) {
	switch k {
	case parameter.Ports, parameter.PortSelection:
		return "80,a,90-91,*", []string{"a", "90-91", "*"}
	case parameter.Prefixes, parameter.PrefixSelection:
		return "10.0.0.0/8, 10.1.0.0/16,10.2.0.1,*", []string{" 10.1.0.0/16", "10.2.0.1", "*"}
	case parameter.Interfaces:
		return "eth0,eth+,0eth,", []string{"eth+", "0eth", ""}
	case parameter.IDs, parameter.GroupSelection:
		return "1,root,5-4,*", []string{"root", "5-4", "*"}
	case parameter.Mode:
		return "", []string{""}
	case parameter.UserName:
		return "", nil
	}
	return "many", []string{"many"}
}

func TestAllSettersSetTheSameValue(t *testing.T) {
	before := parameter.Defaults()
	for _, p := range parameter.All() {
		byFlag, byAnnotation, byArgument := parameter.Defaults(), parameter.Defaults(), parameter.Defaults()
		if err := p.Set(&byFlag, sample(p.Kind), parameter.Names{}); err != nil ||
			reflect.DeepEqual(byFlag, before) {
			t.Errorf("%s: Set: error %v and values %+v, want no error and a changed value", p.Help,
				err, byFlag)
		}
		if invalid := p.SetFromAnnotation(&byAnnotation, sample(p.Kind)); invalid != nil ||
			!reflect.DeepEqual(byFlag, byAnnotation) {
			t.Errorf("%s: SetFromAnnotation: values %+v and invalid elements %q, want %+v and none", p.Help,
				byAnnotation, invalid, byFlag)
		}
		if invalid := p.SetFromArgument(&byArgument, sample(p.Kind)); invalid != nil ||
			!reflect.DeepEqual(byFlag, byArgument) {
			t.Errorf("%s: SetFromArgument: values %+v and invalid elements %q, want %+v and none", p.Help,
				byArgument, invalid, byFlag)
		}
	}
}

// Each parameter that only ambient mode has, except --ambient itself, changes the parameters of the
// redirection to ztunnel. So does each shared parameter, except --backend and --strict-istio.
func TestEachAmbientParameterChangesTheRedirection(t *testing.T) {
	samples := map[string]string{
		"ambient-dns-capture": "false", "ambient-ipv6": "false", "bypass-inbound-capture": "true",
		"host-probe-snat-ip": "10.9.9.9", "host-probe-snat-ipv6": "fd99::9",
		"kube-virt-interfaces": "net1",
		"counters":             "true", "without": string(rules.NATFirst),
	}
	exceptions := []string{"ambient", "backend", "strict-istio"}
	ambient := parameter.Ambient()
	for _, p := range slices.Concat(parameter.All(), parameter.SluiceOnly()) {
		if p.Ambient {
			ambient = append(slices.Clip(ambient), p)
		}
	}
	defaults := parameter.Defaults()
	before := defaults.AmbientRedirect()
	for _, p := range ambient {
		text, found := samples[p.Flag]
		if !found {
			if !slices.Contains(exceptions, p.Flag) {
				t.Errorf("the test has no sample for --%s", p.Flag)
			}
			continue
		}
		v := parameter.Defaults()
		err := p.Set(&v, text, parameter.Names{})
		if a := v.AmbientRedirect(); err != nil || reflect.DeepEqual(a, before) {
			t.Errorf("--%s %s: error %v and redirection %+v, want no error and a changed redirection",
				p.Flag, text, err, a)
		}
		delete(samples, p.Flag)
		if p.Kind == parameter.ProbeSourceIPv4 || p.Kind == parameter.ProbeSourceIPv6 {
			if err := p.Set(&v, "10.0.0", parameter.Names{}); err == nil {
				t.Errorf("--%s 10.0.0: no error, want one, because the value is not an address", p.Flag)
			}
		}
	}
	if len(samples) > 0 {
		t.Errorf("ambient mode has no parameters for the samples %v", samples)
	}
}

// A parameter with a fixed set of values accepts each of them. No parameter accepts an arbitrary
// text. The CNI configuration, the agent and the chart have the same parameters.
func TestSluiceOnlyParameters(t *testing.T) {
	parameters := parameter.SluiceOnly()
	for i := range parameters {
		p := &parameters[i]
		for _, word := range p.Kind.Words() {
			if err := p.Set(new(parameter.Values), word, parameter.Names{}); err != nil {
				t.Errorf("--%s: %v", p.Flag, err)
			}
		}
		var v parameter.Values
		if err := p.Set(&v, "none of the words", parameter.Names{}); err == nil ||
			!reflect.DeepEqual(v, parameter.Values{}) {
			t.Errorf("--%s: an invalid value: error %v and values %+v, want an error and no values",
				p.Flag, err, v)
		}
		if (p.Config == "") != (p.AgentVariable == "") || (p.Config == "") != (p.Helm == "") {
			t.Errorf("--%s: the names in the plugin, the agent and the chart are %q, %q and %q, want "+
				"all or none", p.Flag, p.Config, p.AgentVariable, p.Helm)
		}
		if p.Config != "" && parameter.OfConfig(p.Config).Flag != p.Flag {
			t.Errorf("OfConfig(%q) returns --%s, want --%s", p.Config,
				parameter.OfConfig(p.Config).Flag, p.Flag)
		}
	}
}

func TestSetFromAnnotationReturnsInvalidElements(t *testing.T) {
	for _, p := range parameter.All() {
		text, want := faulty(p.Kind)
		got := parameter.Defaults()
		if want == nil {
			continue
		}
		if invalid := p.SetFromAnnotation(&got, text); !slices.Equal(invalid, want) ||
			!reflect.DeepEqual(got, parameter.Defaults()) {
			t.Errorf("%s: SetFromAnnotation(%q): values %+v and invalid elements %q, want the defaults and %q",
				p.Help, text, got, invalid, want)
		}
	}
}

// Names are unique, and each field that a parameter names exists.
func TestNamesAreUniqueAndFieldsExist(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range slices.Concat(parameter.All(), parameter.Ambient(), parameter.SluiceOnly()) {
		names := slices.Concat(p.Variables, p.PodVariables, p.Annotations,
			[]string{
				"--" + p.Flag, "-" + p.Short, p.SecurityContext, p.AgentVariable,
				"config:" + p.Config, "key:" + p.Helm,
			})
		for _, name := range names {
			if seen[name] && strings.Trim(name, "-") != "" && !strings.HasSuffix(name, ":") {
				t.Errorf("several parameters are named %s", name)
			}
			seen[name] = true
		}
		field, _, _ := strings.Cut(p.Field, ".")
		_, inRedirect := reflect.TypeFor[rules.Redirect]().FieldByName(field)
		_, inAmbient := reflect.TypeFor[rules.Ambient]().FieldByName(field)
		if p.Field != "" && !inRedirect && !inAmbient {
			t.Errorf("neither rules.Redirect nor rules.Ambient has a field %s", p.Field)
		}
	}
}

// rules/README.md lists exactly the parameters of this package.
func TestManualListsEveryParameter(t *testing.T) {
	const begin, end = "<!-- parameters: begin -->\n", "<!-- parameters: end -->\n"
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begin)
	got, _, found := strings.Cut(rest, end)
	var want strings.Builder
	want.WriteString("| flag | variables | annotations, securityContext | default | meaning |\n|---|---|---|---|---|\n")
	for _, p := range parameter.All() {
		flag := ""
		if p.Flag != "" {
			flag = "`" + p.FlagName() + "`" + sharedMark(&p)
		}
		row := []string{
			flag, quoted(slices.Concat(p.Variables, p.PodVariables)),
			quoted(append(slices.Clone(p.Annotations), p.SecurityContext)),
			quoted([]string{p.Default}), p.Help,
		}
		want.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	want.WriteString("\nParameters of ambient mode. They have an effect only with `--ambient`. " +
		"Of the parameters in the other\ntables, `--ambient` allows only those marked with *.\n\n" +
		"| flag | variables | annotations | default | meaning |\n|---|---|---|---|---|\n")
	for _, p := range parameter.Ambient() {
		row := []string{
			quoted([]string{p.FlagName()}), quoted(p.Variables), quoted(p.Annotations),
			quoted([]string{p.Default}), p.Help,
		}
		want.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	want.WriteString("\nParameters that Istio does not have. A pod can set only those with an annotation.\n\n" +
		"| flag | plugin configuration | node agent | chart | annotation | default | allowed | meaning |\n|---|---|---|---|---|---|---|---|\n")
	parameters := parameter.SluiceOnly()
	for i := range parameters {
		p := &parameters[i]
		row := []string{
			quoted(append([]string{p.FlagName()}, p.Variables...)) + sharedMark(p), quoted([]string{p.Config}),
			quoted([]string{p.AgentVariable}),
			quoted([]string{p.Helm}), quoted(p.Annotations), p.DefaultText(), p.Kind.Allowed(), p.Help,
		}
		want.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	if !found || got != want.String() {
		t.Errorf("rules/README.md is out of date. Between %q and %q it must contain:\n%s", begin, end,
			want.String())
	}
}

// sharedMark returns the mark of a parameter that ambient mode shares, and otherwise an empty text.
func sharedMark(p *parameter.Parameter) string {
	if p.Ambient {
		return " *"
	}
	return ""
}

// quoted returns the names that are not empty as a list of code in Markdown.
func quoted(names []string) string {
	var all []string
	for _, name := range names {
		if name != "" {
			all = append(all, "`"+name+"`")
		}
	}
	return strings.Join(all, ", ")
}

func TestInvocationSetsTheRedirect(t *testing.T) {
	dualStack := []netip.Addr{
		netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.0.0.1"),
		netip.MustParseAddr("fd00::1"),
	}
	lookUp := func(string) (uint32, error) { return 4242, nil }
	for _, test := range []struct {
		name   string
		in     parameter.Invocation
		change func(r *rules.Redirect)
	}{
		{"no input means the defaults", parameter.Invocation{}, func(*rules.Redirect) {}},
		{"a flag takes precedence over its variable", parameter.Invocation{
			Args:     []string{"-z", "1"},
			Variable: environment("INBOUND_CAPTURE_PORT=2", "INBOUND_TUNNEL_PORT=3"),
		}, func(r *rules.Redirect) { r.InboundCapturePort, r.TunnelPort = 1, 3 }},
		{"the last variable takes precedence", parameter.Invocation{
			Variable: environment("DROP_INVALID=false", "INVALID_DROP=true"),
		}, func(r *rules.Redirect) { r.DropInvalid = true }},
		{
			"the first address determines IPv6",
			parameter.Invocation{Addresses: dualStack},
			func(*rules.Redirect) {},
		},
		{"dual stack captures IPv6 too", parameter.Invocation{
			Args: []string{"--dual-stack"}, Addresses: dualStack,
		}, func(r *rules.Redirect) { r.IPv6 = true }},
		{"groups default to the users", parameter.Invocation{Args: []string{
			"-u", "7",
		}}, func(r *rules.Redirect) {
			r.ProxyUIDs, r.ProxyGIDs = rules.Singles[uint32](7), rules.Singles[uint32](7)
		}},
		{"the proxy's user is looked up", parameter.Invocation{
			Names: parameter.Names{Users: lookUp},
		}, func(r *rules.Redirect) {
			r.ProxyUIDs, r.ProxyGIDs = rules.Singles[uint32](4242), rules.Singles[uint32](4242)
		}},
		{
			"DNS without a server is not captured",
			parameter.Invocation{Args: []string{"--redirect-dns"}},
			func(*rules.Redirect) {},
		},
		{"DNS is captured for the servers of the pod", parameter.Invocation{
			Args:        []string{"--redirect-dns"},
			Nameservers: []netip.Addr{netip.MustParseAddr("fe80::a%eth0")},
		}, func(r *rules.Redirect) {
			r.DNS = rules.DNS{Capture: true, Servers: []netip.Addr{netip.MustParseAddr("fe80::a")}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := rules.DefaultRedirect()
			test.change(&want)
			if got, err := test.in.Redirect(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v and the error %v, want %+v", got, err, want)
			}
		})
	}
}

// environment returns a lookup in variables of the form NAME=VALUE.
func environment(variables ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, v := range variables {
			if value, found := strings.CutPrefix(v, name+"="); found {
				return value, true
			}
		}
		return "", false
	}
}

// The error names every invalid input.
func TestInvocationReportsAllErrors(t *testing.T) {
	_, err := parameter.Invocation{
		Args: []string{
			"--color=red", "-p", "0", "-m", "NONE", "-o", "-1,5", "-z", "15001", "-r",
		},
		Variable: environment("PROXY_UID=root", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=10.0.0.0/8"),
	}.Redirect()
	const want = `"--color" is not a flag of istio-iptables
--istio-inbound-tproxy-route-table: want a value
--envoy-port (-p): "0" is not a port (1-65535)
environment variable PROXY_UID: "root" is neither a numeric id (0-4294967294) nor an ascending range of ids
--istio-inbound-interception-mode (-m): "NONE" is not a mode: want REDIRECT or TPROXY
--istio-local-outbound-ports-exclude (-o): "-1" is neither a port (0-65535) nor an ascending range of ports
environment variable ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "10.0.0.0/8" is not an IPv4 loopback prefix from /8 to /32, such as 127.0.0.1/32`
	if err == nil || err.Error() != want {
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
}

// The parameters of an accepted invocation are valid. Redirect returns them again when it is called
// again.
func FuzzInvocation(f *testing.F) {
	f.Add("istio-iptables -p 15001 -z 15006 -u 1337 -m TPROXY -i * -x 10.0.0.0/8 -b * -d 15090,15021", "ISTIO_META_DNS_CAPTURE=true")
	f.Add("--dual-stack -np1 -c eth+,net* --new=7 -- -z 3", "PROXY_UID=root,7-9 INVALID_DROP=1")
	f.Fuzz(func(t *testing.T, args, variables string) {
		in := parameter.Invocation{
			Args: strings.Split(args, " "), Variable: environment(strings.Split(variables, " ")...),
		}
		r, err := in.Redirect()
		if err != nil {
			if !reflect.DeepEqual(r, rules.Redirect{}) {
				t.Fatalf("Redirect returned %+v with the error %v, want the zero value", r, err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("the accepted parameters %+v are not valid: %v", r, err)
		}
		if second, err := in.Redirect(); err != nil || !reflect.DeepEqual(r, second) {
			t.Fatalf("the first result is %+v, the second %+v with the error %v", r, second, err)
		}
	})
}
