package decide_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

var ipv4 = addresses("10.244.1.7")

// cniDefaults returns the parameters of istio-cni for a pod with the injector's defaults.
func cniDefaults() rules.Redirect {
	return rules.Redirect{
		Mode:      rules.ModeRedirect,
		ProxyPort: 15001, InboundCapturePort: 15006, TunnelPort: 15008,
		ProxyUIDs: rules.Singles[uint32](1337), ProxyGIDs: rules.Singles[uint32](1337),
		TProxyMark: 1337, TProxyRouteTable: 133,
		InboundPorts:         rules.PortSelection{All: true},
		InboundExcludePorts:  rules.Singles[uint16](15020, 15021, 15090),
		OutboundCIDRs:        rules.PrefixSelection{All: true},
		OutboundExcludePorts: rules.Singles[uint16](15020),
		OwnerGroups:          rules.GroupSelection{All: true},
		LoopbackCIDR:         netip.MustParsePrefix("127.0.0.1/32"),
	}
}

func TestParametersOfInjectedPods(t *testing.T) {
	dualStack := addresses("10.244.1.7", "fd00:10:244:1::7")
	for _, test := range []struct {
		name, pod string
		addresses []netip.Addr
		change    func(r *rules.Redirect)
		notes     []decide.NoteKind
	}{
		{
			"a native sidecar has istio-cni's defaults", "native-sidecar", ipv4,
			func(*rules.Redirect) {}, nil,
		},
		{
			"an ordinary sidecar has istio-cni's defaults, with a note about an init container", "sidecar", ipv4,
			func(*rules.Redirect) {},
			[]decide.NoteKind{decide.InitContainersCaptured},
		},
		{"TPROXY: the user 0 means 1337", "tproxy", ipv4, func(r *rules.Redirect) {
			r.Mode = rules.ModeTProxy
		}, nil},
		{
			"OpenShift: the proxy's ids are from the namespace's range", "openshift",
			ipv4, func(r *rules.Redirect) {
				r.ProxyUIDs, r.ProxyGIDs = rules.Singles[uint32](1000669999),
					rules.Singles[uint32](1000669999)
			}, nil,
		},
		{"a revision has no effect", "revisioned", ipv4, func(*rules.Redirect) {}, nil},
		{"dual stack: IPv6 in addition to IPv4", "dual-stack", dualStack, func(r *rules.Redirect) {
			r.IPv6 = true
		}, nil},
		{"dual stack in a pod without IPv6", "dual-stack", ipv4, func(*rules.Redirect) {}, nil},
		{
			"two addresses without dual stack: IPv6 is not captured, with a note",
			"native-sidecar", dualStack, func(*rules.Redirect) {},
			[]decide.NoteKind{decide.IPv6Uncaptured},
		},
		{"a label that opts in sets no parameter", "opt-in-label", ipv4, func(*rules.Redirect) {}, nil},
		{
			"a control plane of the previous minor version, with the former name of rerouted interfaces",
			"control-plane-before", ipv4,
			func(r *rules.Redirect) {
				r.InboundExcludePorts = rules.Singles[uint16](9090, 9091, 15020, 15021, 15090)
				r.RerouteInterfaces = []rules.InterfaceName{{Name: "k6t-eth0"}, {Name: "net1"}}
			}, nil,
		},
		{
			"a control plane of the next minor version: unknown settings have no effect, with a note", "control-plane-after", ipv4,
			func(r *rules.Redirect) {
				r.RerouteInterfaces = []rules.InterfaceName{{Name: "k6t-eth0"}}
			},
			[]decide.NoteKind{decide.ArgumentUnknown},
		},
		{"every annotation sets its parameter", "annotations", ipv4, func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: rules.Singles[uint16](8080, 8443)}
			r.InboundExcludePorts = rules.Singles[uint16](9100, 15020, 15021, 15090, 15999)
			r.OutboundCIDRs = rules.PrefixSelection{Prefixes: prefixes("10.0.0.0/8", "fd00::/8")}
			r.OutboundExcludeCIDRs = prefixes("10.1.2.0/24", "192.168.7.9/16")
			r.OutboundPorts = rules.Singles[uint16](443, 8443)
			r.OutboundExcludePorts = rules.Singles[uint16](3306, 5432)
			r.ExcludeInterfaces = []rules.InterfaceName{{Name: "net1"}, {Name: "lxc.0"}}
			r.RerouteInterfaces = []rules.InterfaceName{{Name: "k6t-a"}}
		}, nil},
		{"mesh-wide settings apply without an annotation", "mesh-settings", ipv4, func(r *rules.Redirect) {
			r.ProxyPort, r.InboundCapturePort, r.TunnelPort = 16001, 16006, 16008
			r.TProxyMark, r.TProxyRouteTable = 0x53b, 134
			r.OutboundCIDRs = rules.PrefixSelection{}
			r.OutboundPorts = rules.Singles[uint16](9200)
			r.OwnerGroups = rules.GroupSelection{IDs: []rules.IDRange{
				{First: 1000, Last: 1000}, {First: 2000, Last: 2999},
			}}
			r.OwnerGroupsExclude = rules.Singles[uint32](3000)
			r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8")
			r.DNS = rules.DNS{Capture: true, All: true}
			r.DropInvalid = true
		}, []decide.NoteKind{decide.AllDNSCaptured, decide.VariableOfIstioInit}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := cniDefaults()
			test.change(&want)
			got, notes, err := decide.Parameters(readPod(t, test.pod), test.addresses, &settings)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(want, got); d != "" {
				t.Errorf("redirection (-want +got):\n%s", d)
			}
			if d := diff(test.notes, kinds(notes)); d != "" {
				t.Errorf("notes %v, kinds (-want +got):\n%s", notes, d)
			}
		})
	}
}

func TestNotesOnMeshSettings(t *testing.T) {
	_, notes, err := decide.Parameters(readPod(t, "mesh-settings"), ipv4, &settings)
	want := []string{
		"all-dns-captured: CAPTURE_ALL_DNS is false, but the queries to all servers are captured, as by istio-cni: " +
			"the pod's own servers are not known when its rules are made",
		"variable-of-istio-init: variables of the proxy that istio-cni ignores have the effect that they have " +
			`with istio-init: "ISTIO_OUTBOUND_PORTS", "ISTIO_OUTBOUND_OWNER_GROUPS", ` +
			`"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"`,
	}
	var got []string
	for _, n := range notes {
		got = append(got, n.String())
	}
	if d := diff(want, got); d != "" || err != nil {
		t.Errorf("error %v, notes (-want +got):\n%s", err, d)
	}
}

func kinds(notes []decide.Note) []decide.NoteKind {
	var kinds []decide.NoteKind
	for _, n := range notes {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

// meshPod returns a pod with only the fields that a decision needs: no annotation or argument sets
// a parameter.
func meshPod() *decide.Pod {
	return &decide.Pod{
		Metadata: decide.Metadata{
			Namespace: "shop", Name: "web",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		},
		Spec: decide.PodSpec{
			InitContainers: []decide.Container{{Name: "istio-validation"}},
			Containers:     []decide.Container{{Name: "web"}, {Name: "istio-proxy"}},
		},
	}
}

func TestDefaultsMatchIstioCNI(t *testing.T) {
	pod := meshPod()
	got, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	if err != nil || len(notes) > 0 {
		t.Fatalf("error %v, notes %v; want neither", err, notes)
	}
	if d := diff(cniDefaults(), got); d != "" {
		t.Errorf("redirection (-want +got):\n%s", d)
	}
	pod.Spec.InitContainers = nil
	without, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	if d := diff(got, without); d != "" || err != nil {
		t.Errorf("without a validation container: error %v, redirection (-want +got):\n%s", err, d)
	}
}

func TestDeviationsCanBeDisabled(t *testing.T) {
	s := decide.Settings{Without: []rules.DeviationID{rules.NATFirst}}
	got, _, err := decide.Parameters(meshPod(), ipv4, &s)
	want := cniDefaults()
	want.Without = []rules.DeviationID{rules.NATFirst}
	if d := diff(want, got); d != "" || err != nil {
		t.Errorf("error %v, redirection (-want +got):\n%s", err, d)
	}
}

func TestIdentityOfTheProxy(t *testing.T) {
	context := func(user, group *int64) *decide.SecurityContext {
		return &decide.SecurityContext{RunAsUser: user, RunAsGroup: group}
	}
	for _, test := range []struct {
		name       string
		proxy, pod *decide.SecurityContext
		args       []string
		uid, gid   uint32
	}{
		{"no ids", nil, nil, nil, 1337, 1337},
		{
			"the container's ids", context(pointer[int64](1400), pointer[int64](1401)), nil, nil, 1400,
			1401,
		},
		{"0 is 1337", context(pointer[int64](0), pointer[int64](0)), nil, nil, 1337, 1337},
		{
			"the container's 0 takes precedence over the pod's id", context(pointer[int64](0), nil),
			context(pointer[int64](1000), nil), nil, 1337, 1337,
		},
		{
			"the pod's ids are the fallback", nil, context(pointer[int64](2000), pointer[int64](2001)), nil,
			2000, 2001,
		},
		{
			"the pod's 0 is 1337", nil, context(pointer[int64](0), pointer[int64](0)), nil, 1337,
			1337,
		},
		{
			"user and group have independent fallbacks",
			context(pointer[int64](1400), nil), context(pointer[int64](2000), pointer[int64](2001)),
			nil, 1400, 2001,
		},
		{
			"without ids the arguments apply", nil, nil,
			[]string{"-u", "1500", "-g", "1501"},
			1500, 1501,
		},
		{
			"the container's id takes precedence over the arguments", context(pointer[int64](1400), nil), nil,
			[]string{"-u", "1500"},
			1400, 1337,
		},
		{"empty arguments are ignored", nil, nil, []string{"-u", "", "-g="}, 1337, 1337},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Spec.Containers[1].SecurityContext = test.proxy
			pod.Spec.SecurityContext = test.pod
			pod.Spec.InitContainers[0].Args = test.args
			want := cniDefaults()
			want.ProxyUIDs, want.ProxyGIDs = rules.Singles(test.uid), rules.Singles(test.gid)
			got, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if d := diff(want, got); d != "" || err != nil {
				t.Errorf("error %v, redirection (-want +got):\n%s", err, d)
			}
		})
	}
}

func TestFamilies(t *testing.T) {
	for _, test := range []struct {
		name      string
		addresses []netip.Addr
		dualStack bool
		ipv6      bool
		note      string
		wantErr   bool
	}{
		{name: "IPv4 only", addresses: ipv4},
		{name: "IPv6 only", addresses: addresses("fd00::5"), ipv6: true},
		{
			name:      "without dual stack, a later IPv4 address excludes IPv6",
			addresses: addresses("fd00::5", "10.0.0.5"),
			note:      "the pod's IPv6 is not captured: it has fd00::5 in addition to an IPv4 address, and ISTIO_DUAL_STACK is not set",
		},
		{
			name:      "dual stack, IPv6 first",
			addresses: addresses("fd00::5", "10.0.0.5"), dualStack: true, ipv6: true,
		},
		{
			name:      "without dual stack, an earlier IPv4 address excludes IPv6",
			addresses: addresses("10.0.0.5", "fd00::5", "fd00::6"),
			note:      "the pod's IPv6 is not captured: it has fd00::5 in addition to an IPv4 address, and ISTIO_DUAL_STACK is not set",
		},
		{
			name: "dual stack", addresses: addresses("10.0.0.5", "fd00::5"), dualStack: true,
			ipv6: true,
		},
		{
			name:      "dual stack, IPv6 as the last of several addresses",
			addresses: addresses("10.0.0.5", "10.0.0.6", "fd00::5"), dualStack: true, ipv6: true,
		},
		{name: "dual stack without IPv6", addresses: ipv4, dualStack: true},
		{
			name: "loopback and link-local addresses are ignored", ipv6: true,
			addresses: addresses("127.0.0.1", "169.254.3.4", "::1", "fe80::1", "ff02::1", "0.0.0.0",
				"fd00::5"),
		},
		{name: "an IPv4-mapped address is IPv4", addresses: addresses("::ffff:10.0.0.5")},
		{
			name:      "an invalid address is ignored",
			addresses: []netip.Addr{{}, netip.MustParseAddr("fd00::5")}, ipv6: true,
		},
		{name: "no address", wantErr: true},
		{name: "only ignored addresses", addresses: addresses("127.0.0.1", "fe80::1%eth0"), wantErr: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			if test.dualStack {
				setVariable(&pod.Spec.Containers[1], "ISTIO_DUAL_STACK", "true")
			}
			r, notes, err := decide.Parameters(pod, test.addresses, &decide.Settings{})
			if (err != nil) != test.wantErr || r.IPv6 != test.ipv6 {
				t.Errorf("IPv6 %v, error %v, want IPv6 %v and an error: %v", r.IPv6, err, test.ipv6, test.wantErr)
			}
			var want []decide.Note
			if test.note != "" {
				want = []decide.Note{{Kind: decide.IPv6Uncaptured, Message: test.note}}
			}
			if d := diff(want, notes); d != "" {
				t.Errorf("notes (-want +got):\n%s", d)
			}
		})
	}
}
