package decide_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	modeLabel  = "istio.io/dataplane-mode"
	dnsCapture = "ambient.istio.io/dns-capture"
	bypass     = "ambient.istio.io/bypass-inbound-capture"
	reroute    = "istio.io/reroute-virtual-interfaces"
)

// ambientSettings returns the settings of a node with Istio's default selectors.
func ambientSettings() *decide.Settings {
	ambient := decide.DefaultAmbientSettings()
	return &decide.Settings{
		ExcludeNamespaces: []string{"kube-system"},
		AgentNamespace:    "istio-system", AgentDaemonSet: "sluice-node", Ambient: &ambient,
	}
}

func TestWhichPodsAreInAmbientMode(t *testing.T) {
	labels := func(mode string) map[string]string {
		if mode == "" {
			return nil
		}
		return map[string]string{modeLabel: mode}
	}
	sidecar := map[string]string{"sidecar.istio.io/status": ""}
	for _, test := range []struct {
		name      string
		pod       string // the pod's label; empty for none
		namespace string // the namespace's label; empty for none
		change    func(*decide.Pod, *decide.Settings)
		outcome   decide.Outcome
		reason    decide.Reason
	}{
		{"neither label", "", "", nil, decide.Skip, decide.NoProxyContainer},
		{"the pod's label", "ambient", "", nil, decide.Ambient, decide.AmbientPod},
		{"the namespace's label", "", "ambient", nil, decide.Ambient, decide.AmbientPod},
		{
			"the pod opts out of its namespace", "none", "ambient", nil, decide.Skip,
			decide.NoProxyContainer,
		},
		{"the pod opts out without a label of the namespace", "none", "", nil, decide.Skip, decide.NoProxyContainer},
		{
			"any other value in an ambient namespace", "sidecar", "ambient", nil, decide.Ambient,
			decide.AmbientPod,
		},
		{"any other value in another namespace", "sidecar", "", nil, decide.Skip, decide.NoProxyContainer},
		{"values are case-sensitive", "", "Ambient", nil, decide.Skip, decide.NoProxyContainer},
		{
			"the host's network", "ambient", "ambient",
			func(p *decide.Pod, _ *decide.Settings) { p.Spec.HostNetwork = true }, decide.Skip,
			decide.HostNetwork,
		},
		{
			"a sidecar with any status", "ambient", "ambient",
			func(p *decide.Pod, _ *decide.Settings) { p.Metadata.Annotations = sidecar }, decide.Skip,
			decide.NoProxyContainer,
		},
		{
			"a pod with a sidecar is redirected to it", "ambient", "ambient",
			func(p *decide.Pod, _ *decide.Settings) {
				p.Metadata.Annotations = sidecar
				p.Spec.Containers = []decide.Container{{Name: "istio-proxy"}}
			}, decide.Redirect, decide.MeshPod,
		},
		{
			"an excluded namespace", "ambient", "ambient",
			func(p *decide.Pod, _ *decide.Settings) { p.Metadata.Namespace = "kube-system" },
			decide.Skip, decide.NamespaceExcluded,
		},
		{
			"a pod of the agent", "ambient", "ambient",
			func(p *decide.Pod, _ *decide.Settings) {
				p.Metadata.Namespace, p.Metadata.Name = "istio-system", "sluice-node-x7k2p"
			}, decide.Skip, decide.NodeAgent,
		},
		{
			"ambient mode is disabled", "ambient", "ambient",
			func(_ *decide.Pod, s *decide.Settings) { s.Ambient = nil }, decide.Skip,
			decide.NoProxyContainer,
		},
		{
			"without selectors no pod is selected", "ambient", "ambient",
			func(_ *decide.Pod, s *decide.Settings) { s.Ambient.Selectors = nil }, decide.Skip,
			decide.NoProxyContainer,
		},
		{
			"an empty selector selects every pod", "none", "",
			func(_ *decide.Pod, s *decide.Settings) {
				s.Ambient.Selectors = []decide.Selector{{}}
			}, decide.Ambient, decide.AmbientPod,
		},
		{
			"selectors of sidecars have no effect", "ambient", "",
			func(_ *decide.Pod, s *decide.Settings) {
				s.Selectors = []decide.Selector{{Pods: &decide.LabelSelector{
					MatchLabels: map[string]string{"no": "pod"},
				}}}
			}, decide.Ambient, decide.AmbientPod,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := ambientSettings()
			pod := &decide.Pod{Metadata: decide.Metadata{
				Namespace: "shop", Name: "web", Labels: labels(test.pod),
			}}
			if test.change != nil {
				test.change(pod, s)
			}
			namespace := &decide.Namespace{Metadata: decide.Metadata{Labels: labels(test.namespace)}}
			got := decide.Decide(decide.Input{
				Attachment: attachment(pod), Pod: pod, Namespace: namespace,
			}, s)
			if got.Outcome != test.outcome || got.Reason != test.reason {
				t.Errorf("decision %v, want %v (%v)", got, test.outcome, test.reason)
			}
		})
	}
}

func TestAmbientModeNeedsLabels(t *testing.T) {
	s := ambientSettings()
	annotated := decide.Attachment{
		Namespace: "shop", Name: "web", Annotations: map[string]string{"a": "b"},
	}
	if d := decide.Early(annotated, s); d.Reason != decide.PodUnknown {
		t.Errorf("without the pod: %v, want %s", d, decide.PodUnknown)
	}
	s.Ambient = nil
	if d := decide.Early(annotated, s); d.Reason != decide.NotInjected {
		t.Errorf("without ambient mode: %v, want %s", d, decide.NotInjected)
	}
	s = ambientSettings()
	pod := &decide.Pod{Metadata: decide.Metadata{Namespace: "shop", Name: "web"}}
	in := decide.Input{Attachment: attachment(pod), Pod: pod}
	if d := decide.Decide(in, s); d.Outcome != decide.Undecided || d.Reason != decide.NamespaceUnknown {
		t.Errorf("without the namespace: %v, want undecided (%s)", d, decide.NamespaceUnknown)
	}
	pod.Metadata.Labels = map[string]string{modeLabel: "ambient"}
	if d := decide.Decide(in, s); d.Outcome != decide.Ambient {
		t.Errorf("with the pod's label: %v, want ambient", d)
	}
	pod.Metadata.Labels = nil
	pod.Metadata.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	if d := decide.Decide(in, s); d.Reason == decide.NamespaceUnknown {
		t.Errorf("a pod with a sidecar: %v, want a decision without the namespace", d)
	}
}

func TestAmbientParameters(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		change      func(*decide.AmbientSettings)
		want        func(*rules.Ambient)
		note        string
		fault       string
	}{
		{name: "the node's settings"},
		{
			name: "the settings of a node without DNS and IPv6",
			change: func(s *decide.AmbientSettings) {
				s.DNS, s.IPv6 = false, false
			},
			want: func(a *rules.Ambient) { a.DNS, a.IPv6 = false, false },
		},
		{
			name: "DNS disabled for the pod", annotations: map[string]string{dnsCapture: "f"},
			want: func(a *rules.Ambient) { a.DNS = false },
		},
		{
			name: "DNS enabled for the pod", annotations: map[string]string{dnsCapture: "TRUE"},
			change: func(s *decide.AmbientSettings) { s.DNS = false },
		},
		{
			name: "a value that is not a Boolean", annotations: map[string]string{dnsCapture: "off"},
			note: `annotation ambient.istio.io/dns-capture is ignored: "off" is not true or false`,
		},
		{
			name: "an empty value", annotations: map[string]string{bypass: ""},
			note: `annotation ambient.istio.io/bypass-inbound-capture is ignored: "" is not true or false`,
		},
		{
			name: "inbound is not captured", annotations: map[string]string{bypass: "1"},
			want: func(a *rules.Ambient) { a.BypassInboundCapture = true },
		},
		{
			name: "interfaces", annotations: map[string]string{reroute: " virt0,, net+ ,"},
			want: func(a *rules.Ambient) {
				a.RerouteInterfaces = []rules.InterfaceName{{Name: "virt0"}, {Name: "net", Prefix: true}}
			},
		},
		{
			name: "an asterisk is ambiguous", annotations: map[string]string{reroute: "virt*"},
			fault: `annotation istio.io/reroute-virtual-interfaces: "virt*" is not allowed`,
		},
		{
			name:        "a line feed cannot add rules",
			annotations: map[string]string{reroute: "virt0,a\n-A X"},
			fault:       `annotation istio.io/reroute-virtual-interfaces: "a\n-A X" is not allowed`,
		},
		{
			name: "a name of 16 bytes", annotations: map[string]string{reroute: "abcdefghijklmnop"},
			fault: `"abcdefghijklmnop" is not allowed`,
		},
		{
			name:        "many invalid names",
			annotations: map[string]string{reroute: strings.Repeat("a/b,", 20)},
			fault:       "each of 12 more elements is not allowed",
		},
		{
			name:        "annotations of sidecars have no effect",
			annotations: map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "x"},
		},
		{
			name:        "counters",
			annotations: map[string]string{"sluice-mesh.github.io/counters": "true"},
			want:        func(a *rules.Ambient) { a.Counters = true },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := ambientSettings()
			if test.change != nil {
				test.change(s.Ambient)
			}
			want := rules.DefaultAmbient()
			if test.want != nil {
				test.want(&want)
			}
			pod := &decide.Pod{Metadata: decide.Metadata{Annotations: test.annotations}}
			got, notes, err := decide.AmbientParameters(pod, s)
			if test.fault != "" {
				var faults rules.Faults
				if !errors.As(err, &faults) || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("error %v, want %s", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(want, got); d != "" {
				t.Errorf("redirection (-want +got):\n%s", d)
			}
			found := slices.ContainsFunc(notes, func(n decide.Note) bool {
				return n.Kind == decide.AnnotationIgnored && n.Message == test.note
			})
			if found != (test.note != "") || !found && len(notes) > 0 {
				t.Errorf("notes %v, want %q", notes, test.note)
			}
		})
	}
}

// FuzzAmbient sets hostile labels and annotations. Valid parameters compile, and each decision,
// fault and note is a short line.
func FuzzAmbient(f *testing.F) {
	for _, value := range []string{
		"", "true", "F", "virt0", "virt+", "virt*", "a,b", "a\n-A", "\x00", "\u202e", ",,",
	} {
		f.Add(value, value, value, value, value)
	}
	f.Fuzz(func(t *testing.T, dns, inbound, interfaces, podMode, namespaceMode string) {
		s := ambientSettings()
		pod := &decide.Pod{Metadata: decide.Metadata{
			Namespace: "shop", Name: "web", Labels: map[string]string{modeLabel: podMode},
			Annotations: map[string]string{dnsCapture: dns, bypass: inbound, reroute: interfaces},
		}}
		d := decide.Decide(decide.Input{
			Attachment: attachment(pod), Pod: pod, Namespace: &decide.Namespace{
				Metadata: decide.Metadata{Labels: map[string]string{modeLabel: namespaceMode}},
			},
		}, s)
		checkLine(t, d.String())
		expected := podMode == "ambient" || namespaceMode == "ambient" && podMode != "none"
		if (d.Outcome == decide.Ambient) != expected {
			t.Errorf("labels %q of the pod and %q of its namespace: %v, want ambient: %t", podMode,
				namespaceMode, d, expected)
		}
		a, notes, err := decide.AmbientParameters(pod, s)
		for _, n := range notes {
			checkLine(t, n.String())
		}
		if err != nil {
			var faults rules.Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("an error without faults: %v", err)
			}
			for _, fault := range faults {
				checkLine(t, fault.String())
			}
			return
		}
		if _, err := rules.CompileAmbient(a); err != nil {
			t.Fatalf("valid parameters do not compile: %v", err)
		}
	})
}
