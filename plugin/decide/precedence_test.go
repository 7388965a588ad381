package decide_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

const traffic = "traffic.sidecar.istio.io/"

// A place is an input that can set a parameter.
type place struct{ kind, name string }

func (p place) set(pod *decide.Pod, text string) {
	validation, proxy := &pod.Spec.InitContainers[0], &pod.Spec.Containers[1]
	switch p.kind {
	case "annotation":
		pod.Metadata.Annotations[p.name] = text
	case "argument":
		validation.Args = append(validation.Args, "--"+p.name+"="+text)
	case "letter":
		validation.Args = append(validation.Args, "-"+p.name, text)
	case "variable":
		setVariable(proxy, p.name, text)
	}
}

// places returns the places that can set a parameter, in order of precedence. annotations and
// variables contain names separated by blanks. An empty string adds no place.
func places(annotations, argument, letter, variables string) []place {
	var all []place
	for name := range strings.FieldsSeq(annotations) {
		all = append(all, place{"annotation", name})
	}
	if argument != "" {
		all = append(all, place{"argument", argument})
	}
	if letter != "" {
		all = append(all, place{"letter", letter})
	}
	for name := range strings.FieldsSeq(variables) {
		all = append(all, place{"variable", name})
	}
	return all
}

// parameterPlaces contains, for each parameter, the places that can set it, in order of precedence,
// and two values.
var parameterPlaces = []struct {
	name   string
	places []place
	text   string
	change func(r *rules.Redirect)
	other  string // a value that must have no effect at a place of lower precedence
}{
	{
		"the proxy's port", places("", "envoy-port", "p", ""), "16001",
		func(r *rules.Redirect) { r.ProxyPort = 16001 }, "1",
	},
	{
		"the inbound port", places("", "inbound-capture-port", "z", "INBOUND_CAPTURE_PORT"),
		"16006",
		func(r *rules.Redirect) { r.InboundCapturePort = 16006 }, "1",
	},
	{
		"the tunnel port", places("", "inbound-tunnel-port", "e", "INBOUND_TUNNEL_PORT"), "16008",
		func(r *rules.Redirect) { r.TunnelPort = 16008 }, "1",
	},
	{
		"the proxy's users", places("", "proxy-uid", "u", "PROXY_UID"), "1400,2000-2001",
		func(r *rules.Redirect) {
			r.ProxyUIDs = []rules.IDRange{{First: 1400, Last: 1400}, {First: 2000, Last: 2001}}
		}, "1",
	},
	{
		"the proxy's groups", places("", "proxy-gid", "g", "PROXY_GID"), "1401",
		func(r *rules.Redirect) { r.ProxyGIDs = rules.Singles[uint32](1401) }, "1",
	},
	{
		"the mode",
		places("sidecar.istio.io/interceptionMode", "istio-inbound-interception-mode", "m",
			"ISTIO_META_INTERCEPTION_MODE"),
		"TPROXY", func(r *rules.Redirect) { r.Mode = rules.ModeTProxy }, "REDIRECT",
	},
	{
		"the mark", places("", "istio-inbound-tproxy-mark", "t", "ISTIO_INBOUND_TPROXY_MARK"),
		"0x100",
		func(r *rules.Redirect) { r.TProxyMark = 256 }, "1",
	},
	{
		"the routing table",
		places("", "istio-inbound-tproxy-route-table", "r", "ISTIO_INBOUND_TPROXY_ROUTE_TABLE"),
		"200",
		func(r *rules.Redirect) { r.TProxyRouteTable = 200 }, "1",
	},
	{
		"inbound ports",
		places(traffic+"includeInboundPorts", "istio-inbound-ports", "b", "ISTIO_INBOUND_PORTS"),
		"80, 443,80",
		func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: rules.Singles[uint16](80, 443)}
		}, "1",
	},
	{
		"no inbound ports",
		places(traffic+"includeInboundPorts", "istio-inbound-ports", "b", "ISTIO_INBOUND_PORTS"),
		"",
		func(r *rules.Redirect) { r.InboundPorts = rules.PortSelection{} }, "1",
	},
	{
		"excluded inbound ports",
		places(traffic+"excludeInboundPorts", "istio-local-exclude-ports", "d",
			"ISTIO_LOCAL_EXCLUDE_PORTS"), "22,0",
		func(r *rules.Redirect) {
			r.InboundExcludePorts = rules.Singles[uint16](0, 22, 15020, 15021, 15090)
		}, "1",
	},
	{
		"the status port", places("status.sidecar.istio.io/port", "", "", ""), " 15999 ",
		func(r *rules.Redirect) {
			r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090, 15999)
		}, "",
	},
	{
		"no status port", places("status.sidecar.istio.io/port", "", "", ""), "0",
		func(*rules.Redirect) {}, "",
	},
	{
		"destinations",
		places(traffic+"includeOutboundIPRanges", "istio-service-cidr", "i", "ISTIO_SERVICE_CIDR"),
		"10.0.0.0/8,fd00::/8",
		func(r *rules.Redirect) {
			r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("10.0.0.0/8", "fd00::/8")}
		}, "1.0.0.0/8",
	},
	{
		"no destinations",
		places(traffic+"includeOutboundIPRanges", "istio-service-cidr", "i", "ISTIO_SERVICE_CIDR"),
		"",
		func(r *rules.Redirect) { r.OutboundCIDRs = rules.PrefixSelection{} }, "*",
	},
	{
		"excluded destinations",
		places(traffic+"excludeOutboundIPRanges", "istio-service-exclude-cidr", "x",
			"ISTIO_SERVICE_EXCLUDE_CIDR"), "10.9.8.7/16",
		func(r *rules.Redirect) { r.OutboundExcludeCIDRs = prefixes("10.9.8.7/16") }, "1.0.0.0/8",
	},
	{
		"outbound ports",
		places(traffic+"includeOutboundPorts", "istio-outbound-ports", "q", "ISTIO_OUTBOUND_PORTS"),
		"9200",
		func(r *rules.Redirect) { r.OutboundPorts = rules.Singles[uint16](9200) }, "1",
	},
	{
		"outbound ports that the pod excludes", places(traffic+"excludeOutboundPorts", "", "", ""),
		"3306",
		func(r *rules.Redirect) { r.OutboundExcludePorts = rules.Singles[uint16](3306) }, "",
	},
	{
		"no outbound ports excluded by the pod, not even 15020",
		places(traffic+"excludeOutboundPorts", "", "", ""), "",
		func(r *rules.Redirect) { r.OutboundExcludePorts = nil }, "",
	},
	{
		"outbound ports that the mesh excludes, in addition to 15020",
		places("", "istio-local-outbound-ports-exclude", "o", "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"),
		"3306",
		func(r *rules.Redirect) {
			r.OutboundExcludePorts = rules.Singles[uint16](3306, 15020)
		}, "1",
	},
	{
		"no outbound ports excluded by the mesh except 15020",
		places("", "istio-local-outbound-ports-exclude", "o", "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"),
		"", func(*rules.Redirect) {}, "1",
	},
	{
		"owner groups", places("", "", "", "ISTIO_OUTBOUND_OWNER_GROUPS"), "1000,2000-2999",
		func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: []rules.IDRange{
				{First: 1000, Last: 1000}, {First: 2000, Last: 2999},
			}}
		}, "",
	},
	{
		"all owner groups", places("", "", "", "ISTIO_OUTBOUND_OWNER_GROUPS"), "*",
		func(*rules.Redirect) {}, "",
	},
	{
		"no owner groups", places("", "", "", "ISTIO_OUTBOUND_OWNER_GROUPS"), "",
		func(r *rules.Redirect) { r.OwnerGroups = rules.GroupSelection{} }, "",
	},
	{
		"excluded owner groups", places("", "", "", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"), "3000",
		func(r *rules.Redirect) { r.OwnerGroupsExclude = rules.Singles[uint32](3000) }, "",
	},
	{
		"the loopback prefix", places("", "", "", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"),
		"127.0.0.0/8",
		func(r *rules.Redirect) { r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8") }, "",
	},
	{
		"excluded interfaces",
		places(traffic+"excludeInterfaces", "istio-exclude-interfaces", "c",
			"ISTIO_EXCLUDE_INTERFACES"), "a, Zz_.-09bcdefgh9",
		func(r *rules.Redirect) {
			r.ExcludeInterfaces = []rules.InterfaceName{{Name: "a"}, {Name: "Zz_.-09bcdefgh9"}}
		}, "x",
	},
	{
		"rerouted interfaces",
		places("istio.io/reroute-virtual-interfaces "+traffic+"kubevirtInterfaces",
			"kube-virt-interfaces", "k", "KUBE_VIRT_INTERFACES"),
		"k6t-net1", func(r *rules.Redirect) {
			r.RerouteInterfaces = []rules.InterfaceName{{Name: "k6t-net1"}}
		}, "x",
	},
	{
		"no rerouted interfaces",
		places("istio.io/reroute-virtual-interfaces "+traffic+"kubevirtInterfaces",
			"kube-virt-interfaces", "k", "KUBE_VIRT_INTERFACES"),
		"", func(*rules.Redirect) {}, "x",
	},
	{
		"DNS capture, which covers all servers",
		places("", "redirect-dns", "", "ISTIO_META_DNS_CAPTURE REDIRECT_DNS"), "true",
		func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }, "false",
	},
	{
		"capture of all servers without DNS capture",
		places("", "capture-all-dns", "", "CAPTURE_ALL_DNS"), "true",
		func(*rules.Redirect) {}, "false",
	},
	{
		"dropping invalid packets", places("", "drop-invalid", "", "INVALID_DROP DROP_INVALID"), "1",
		func(r *rules.Redirect) { r.DropInvalid = true }, "0",
	},
	{
		"dual stack", places("", "dual-stack", "", "ISTIO_DUAL_STACK DUAL_STACK"), "True",
		func(r *rules.Redirect) { r.IPv6 = true }, "False",
	},
}

func TestEachPlaceOfEachParameter(t *testing.T) {
	for _, test := range parameterPlaces {
		want := cniDefaults()
		test.change(&want)
		for _, p := range test.places {
			t.Run(test.name+" by "+p.kind+" "+p.name, func(t *testing.T) {
				pod := meshPod()
				p.set(pod, test.text)
				got, _, err := decide.Parameters(pod, addresses("10.244.1.7", "fd00::7"),
					&decide.Settings{})
				if d := diff(want, got); d != "" || err != nil {
					t.Errorf("error %v, redirection (-want +got):\n%s", err, d)
				}
			})
		}
	}
}

// TestValueOfThePlaceWithPrecedenceApplies sets a parameter in two places: the value of the place
// with precedence must apply, even if the value of the other place is invalid.
func TestValueOfThePlaceWithPrecedenceApplies(t *testing.T) {
	for _, test := range parameterPlaces {
		want := cniDefaults()
		test.change(&want)
		for i, first := range test.places {
			for _, later := range test.places[i+1:] {
				// A letter and a name are the same flag, whose last value applies.
				if first.kind == "argument" && later.kind == "letter" {
					continue
				}
				for _, text := range []string{test.other, "!"} {
					pod := meshPod()
					later.set(pod, text)
					first.set(pod, test.text)
					got, _, err := decide.Parameters(pod, addresses("10.244.1.7", "fd00::7"),
						&decide.Settings{})
					if d := diff(want, got); d != "" || err != nil {
						t.Errorf("%s: %v %q and %v %q: error %v, redirection (-want +got):\n%s",
							test.name, first, test.text, later, text, err, d)
					}
				}
			}
		}
	}
}

// TestArgumentsAndVariablesHaveTheSyntaxOfIstioIptables checks values that istio-iptables accepts,
// but the injector rejects in annotations.
func TestArgumentsAndVariablesHaveTheSyntaxOfIstioIptables(t *testing.T) {
	ports := []rules.PortRange{{First: 80, Last: 80}, {First: 9000, Last: 9100}}
	interfaces := []rules.InterfaceName{{Name: "eth", Prefix: true}, {Name: "0virt"}}
	for _, test := range []struct {
		places []place
		text   string
		change func(r *rules.Redirect)
	}{
		{
			places("", "istio-inbound-ports", "b", "ISTIO_INBOUND_PORTS"), "80,9000:9100",
			func(r *rules.Redirect) { r.InboundPorts = rules.PortSelection{Ports: ports} },
		},
		{
			places("", "istio-local-exclude-ports", "d", "ISTIO_LOCAL_EXCLUDE_PORTS"),
			"15090,9000-9100,80,",
			func(r *rules.Redirect) {
				r.InboundExcludePorts = append(slices.Clone(ports), r.InboundExcludePorts...)
			},
		},
		{
			places("", "istio-outbound-ports", "q", "ISTIO_OUTBOUND_PORTS"), " 80, 9000:9100",
			func(r *rules.Redirect) { r.OutboundPorts = ports },
		},
		{
			places("", "istio-local-outbound-ports-exclude", "o",
				"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"), "80,9000:9100",
			func(r *rules.Redirect) {
				r.OutboundExcludePorts = append(slices.Clone(ports), r.OutboundExcludePorts...)
			},
		},
		{
			places("", "istio-service-cidr", "i", "ISTIO_SERVICE_CIDR"), "10.0.0.0/8,,fd00::/8,",
			func(r *rules.Redirect) {
				r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("10.0.0.0/8", "fd00::/8")}
			},
		},
		{
			places("", "istio-exclude-interfaces", "c", "ISTIO_EXCLUDE_INTERFACES"), "eth+, 0virt",
			func(r *rules.Redirect) { r.ExcludeInterfaces = interfaces },
		},
		{
			places("", "kube-virt-interfaces", "k", "KUBE_VIRT_INTERFACES"), "eth+,0virt",
			func(r *rules.Redirect) { r.RerouteInterfaces = interfaces },
		},
		{
			places("", "istio-inbound-interception-mode", "m", ""), "", func(*rules.Redirect) {},
		},
	} {
		want := cniDefaults()
		test.change(&want)
		for _, p := range test.places {
			pod := meshPod()
			p.set(pod, test.text)
			got, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			notes = slices.DeleteFunc(notes, func(n decide.Note) bool {
				return n.Kind == decide.VariableOfIstioInit && p.kind == "variable"
			})
			if d := diff(want, got); d != "" || err != nil || len(notes) > 0 {
				t.Errorf("%v %q: error %v, notes %v, redirection (-want +got):\n%s", p, test.text, err,
					notes, d)
			}
		}
	}
}

// TestNamesOfUsersAndGroupsHaveNoEffect checks that an argument or a variable with the name of a
// user or group has no effect, as in istio-cni, and that a note says so.
func TestNamesOfUsersAndGroupsHaveNoEffect(t *testing.T) {
	for _, test := range []struct {
		place            place
		text, wantSource string
		wantNames        string
	}{
		{
			place{"letter", "u"},
			"1400,envoy",
			"argument --proxy-uid (-u) of container istio-validation", `"envoy"`,
		},
		{
			place{"variable", "PROXY_GID"},
			"envoy",
			"variable PROXY_GID of container istio-proxy", `"envoy"`,
		},
		{
			place{"variable", "ISTIO_OUTBOUND_OWNER_GROUPS"},
			"java, _db,1000",
			"variable ISTIO_OUTBOUND_OWNER_GROUPS of container istio-proxy", `"java", "_db"`,
		},
		{
			place{"variable", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			"java,1000",
			"variable ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE of container istio-proxy", `"java"`,
		},
		{
			place{"variable", "ISTIO_OUTBOUND_OWNER_GROUPS"},
			strings.Repeat("java,", 1000),
			"variable ISTIO_OUTBOUND_OWNER_GROUPS of container istio-proxy", `and 992 more`,
		},
	} {
		pod := meshPod()
		test.place.set(pod, test.text)
		got, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
		if d := diff(cniDefaults(), got); d != "" || err != nil {
			t.Errorf("%v: error %v, redirection (-want +got):\n%s", test.place, err, d)
		}
		if len(notes) != 1 || notes[0].Kind != decide.NamesUnresolved ||
			!strings.HasPrefix(notes[0].Message, test.wantSource+" has no effect") ||
			!strings.HasSuffix(notes[0].Message, test.wantNames) {
			t.Errorf("%v: notes %q, want one about %s of %s", test.place, notes, test.wantNames,
				test.wantSource)
		}
	}
}

// TestExcludedOutboundPortsOfThePod checks that the outbound ports that the pod excludes replace
// all outbound ports that the mesh excludes.
func TestExcludedOutboundPortsOfThePod(t *testing.T) {
	for text, want := range map[string][]rules.PortRange{
		"3306": rules.Singles[uint16](3306), "": nil,
	} {
		for _, p := range places("", "istio-local-outbound-ports-exclude", "o",
			"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE") {
			pod := meshPod()
			pod.Metadata.Annotations[traffic+"excludeOutboundPorts"] = text
			p.set(pod, "1")
			got, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if !slices.Equal(got.OutboundExcludePorts, want) || err != nil {
				t.Errorf("annotation %q and %v: ports %v, error %v; want %v", text, p,
					got.OutboundExcludePorts, err, want)
			}
		}
	}
}

func TestTheValidationContainersEnvironmentIsReadToo(t *testing.T) {
	pod := meshPod()
	setVariable(&pod.Spec.InitContainers[0], "INBOUND_TUNNEL_PORT", "16008")
	setVariable(&pod.Spec.InitContainers[0], "ISTIO_OUTBOUND_PORTS", "9200")
	setVariable(&pod.Spec.Containers[1], "ISTIO_OUTBOUND_PORTS", "9201")
	want := cniDefaults()
	want.TunnelPort, want.OutboundPorts = 16008, rules.Singles[uint16](9201)
	got, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	if d := diff(want, got); d != "" || err != nil {
		t.Errorf("error %v, redirection (-want +got):\n%s", err, d)
	}
}

func TestEmptyVariablesCountAsMissing(t *testing.T) {
	pod := meshPod()
	for _, name := range []string{
		"ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK", "INBOUND_TUNNEL_PORT",
		"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
	} {
		setVariable(&pod.Spec.Containers[1], name, "")
	}
	got, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	if d := diff(cniDefaults(), got); d != "" || err != nil {
		t.Errorf("error %v, redirection (-want +got):\n%s", err, d)
	}
}

func TestVariablesWithValueFromAreNoted(t *testing.T) {
	pod := meshPod()
	proxy := &pod.Spec.Containers[1]
	proxy.Env = append(proxy.Env, decide.EnvVar{
		Name: "ISTIO_META_DNS_CAPTURE", ValueFrom: &decide.ValueSource{},
	})
	setVariable(proxy, "REDIRECT_DNS", "true")
	proxy.Env = append(proxy.Env, decide.EnvVar{Name: "POD_NAME", ValueFrom: &decide.ValueSource{}})
	got, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	if err != nil || !got.DNS.Capture {
		t.Errorf("error %v, DNS %+v; want DNS captured because of REDIRECT_DNS", err, got.DNS)
	}
	if len(notes) != 2 || notes[0].Kind != decide.VariableUnread ||
		!strings.Contains(notes[0].String(), "ISTIO_META_DNS_CAPTURE") ||
		notes[1].Kind != decide.VariableOfIstioInit {
		t.Errorf("notes %v, want one about ISTIO_META_DNS_CAPTURE and one about REDIRECT_DNS", notes)
	}
}

func TestTheValidationContainerHasAConfigurableName(t *testing.T) {
	pod := meshPod()
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, decide.Container{
		Name: "check", Args: []string{"-p", "16001"},
	})
	for name, want := range map[string]uint16{"": 15001, "check": 16001} {
		got, _, err := decide.Parameters(pod, ipv4, &decide.Settings{ValidationContainer: name})
		if err != nil || got.ProxyPort != want {
			t.Errorf("%q: port %d, error %v, want %d", name, got.ProxyPort, err, want)
		}
	}
}

func TestInitContainersBeforeTheProxy(t *testing.T) {
	proxy := decide.Container{Name: "istio-proxy", RestartPolicy: "Always"}
	validation := decide.Container{Name: "istio-validation"}
	migrate, fetch := decide.Container{Name: "migrate"}, decide.Container{Name: "fetch"}
	asProxy := decide.Container{
		Name: "migrate", SecurityContext: &decide.SecurityContext{RunAsUser: pointer[int64](1337)},
	}
	for _, test := range []struct {
		name string
		init []decide.Container
		want string
	}{
		{"no init container", []decide.Container{validation}, ""},
		{
			"an init container before an ordinary sidecar",
			[]decide.Container{validation, migrate},
			`user: "migrate"`,
		},
		{"an init container after a native sidecar", []decide.Container{validation, proxy, migrate}, ""},
		{
			"init containers before and after a native sidecar",
			[]decide.Container{fetch, validation, proxy, migrate},
			`user: "fetch"`,
		},
		{"an init container with the proxy's user", []decide.Container{validation, asProxy}, ""},
		{
			"an init container with the proxy's name that is not a native sidecar",
			[]decide.Container{validation, {Name: "istio-proxy"}, migrate},
			`user: "migrate"`,
		},
		{"very many init containers", slices.Repeat([]decide.Container{migrate}, 20), `"migrate", and 12 more`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Spec.InitContainers = test.init
			_, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(notes) > 0 {
					t.Errorf("notes %v, want none", notes)
				}
				return
			}
			if len(notes) != 1 || notes[0].Kind != decide.InitContainersCaptured ||
				!strings.HasSuffix(notes[0].Message, test.want) {
				t.Errorf("notes %v, want one that ends in %q", notes, test.want)
			}
		})
	}
	pod := meshPod()
	pod.Spec.InitContainers = []decide.Container{validation, migrate}
	pod.Spec.SecurityContext = &decide.SecurityContext{RunAsUser: pointer[int64](1000)}
	pod.Spec.Containers[1].SecurityContext = &decide.SecurityContext{
		RunAsUser: pointer[int64](1337),
	}
	if _, notes, _ := decide.Parameters(pod, ipv4, &decide.Settings{}); len(notes) != 1 {
		t.Errorf("the pod's user differs from the proxy's: notes %v, want one", notes)
	}
}

// TestContainersWithTheProxysIDs checks that there is a note if the outbound connections of an
// application bypass the proxy.
func TestContainersWithTheProxysIDs(t *testing.T) {
	ids := func(user, group int64) *decide.SecurityContext {
		return &decide.SecurityContext{RunAsUser: &user, RunAsGroup: &group}
	}
	for _, test := range []struct {
		name            string
		pod, proxy, app *decide.SecurityContext
		wantNote        bool
	}{
		{"no ids", nil, nil, nil, false},
		{"other ids", nil, ids(1337, 1337), ids(1000, 1000), false},
		{"the default user of the proxy", nil, nil, ids(1337, 1000), true},
		{"the default group of the proxy", nil, nil, ids(1000, 1337), true},
		{"the user of the proxy's container", nil, ids(2000, 2000), ids(2000, 1000), true},
		{"the pod's user applies to both containers", ids(1000, 1000), nil, nil, true},
		{"the pod's user applies only to the application", ids(1000, 1000), ids(1337, 1337), nil, false},
		{"the pod's user applies only to the proxy", ids(1000, 1000), nil, ids(2000, 2000), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Spec.SecurityContext = test.pod
			for i := range pod.Spec.Containers {
				c := &pod.Spec.Containers[i]
				c.SecurityContext = test.app
				if c.Name == "istio-proxy" {
					c.SecurityContext = test.proxy
				}
			}
			_, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			hasNote := len(notes) == 1 && notes[0].Kind == decide.ApplicationUncaptured
			if hasNote != test.wantNote || len(notes) > 1 {
				t.Errorf("notes %v, want a note about the application: %t", notes, test.wantNote)
			}
		})
	}
}

func TestCountersAnnotationTakesPrecedence(t *testing.T) {
	for _, test := range []struct {
		name       string
		configured bool
		annotation string
		want       bool
	}{
		{"counters are disabled by default", false, "", false},
		{"the configuration enables counters", true, "", true},
		{"the pod enables counters", false, "true", true},
		{"the pod disables counters", true, "false", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := readPod(t, "native-sidecar")
			if test.annotation != "" {
				pod.Metadata.Annotations["sluice-mesh.github.io/counters"] = test.annotation
			}
			r, _, err := decide.Parameters(pod, ipv4, &decide.Settings{Counters: test.configured})
			if err != nil || r.Counters != test.want {
				t.Errorf("counters %v, error %v, want %v", r.Counters, err, test.want)
			}
		})
	}
}

// TestInvalidCountersAnnotationIsIgnored checks that an annotation that changes no packet does not
// prevent a pod from starting: the node's setting applies, as in ambient mode.
func TestInvalidCountersAnnotationIsIgnored(t *testing.T) {
	const want = `annotation-ignored: annotation sluice-mesh.github.io/counters is ignored: ` +
		`"yes please" is not true or false`
	for _, configured := range []bool{false, true} {
		pod := readPod(t, "native-sidecar")
		pod.Metadata.Annotations["sluice-mesh.github.io/counters"] = "yes please"
		r, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{Counters: configured})
		if err != nil || r.Counters != configured {
			t.Errorf("counters %v, error %v, want %v", r.Counters, err, configured)
		}
		if len(notes) != 1 || notes[0].String() != want {
			t.Errorf("notes %v, want %s", notes, want)
		}
	}
}
