package decide_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

var settings = decide.Settings{
	ExcludeNamespaces: []string{"kube-system", "monitoring-excluded"},
	AgentNamespace:    "sluice-system",
	AgentDaemonSet:    "sluice-node",
}

func TestEarlyDecisions(t *testing.T) {
	status := map[string]string{
		"sidecar.istio.io/status": "{}", "kubernetes.io/config.source": "api",
	}
	injectedWith := func(key, value string) map[string]string {
		return map[string]string{"sidecar.istio.io/status": "{}", key: value}
	}
	for _, test := range []struct {
		name       string
		attachment decide.Attachment
		outcome    decide.Outcome
		reason     decide.Reason
	}{
		{
			"a sandbox without a namespace is not a pod",
			decide.Attachment{Name: "web"},
			decide.Skip,
			decide.NotKubernetes,
		},
		{
			"a sandbox without a name is not a pod",
			decide.Attachment{Namespace: "shop"},
			decide.Skip,
			decide.NotKubernetes,
		},
		{
			"a pod of the agent's DaemonSet",
			decide.Attachment{"sluice-system", "sluice-node-x7k2p", nil},
			decide.Skip,
			decide.NodeAgent,
		},
		{
			"a pod of another DaemonSet with the same prefix",
			decide.Attachment{"sluice-system", "sluice-node-probe-x7k2p", nil},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"a pod with the name of the DaemonSet",
			decide.Attachment{"sluice-system", "sluice-node", nil},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"the name of the agent's pod in another namespace",
			decide.Attachment{"shop", "sluice-node-x7k2p", nil},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"the agent's annotation under another name",
			decide.Attachment{"sluice-system", "agent-x7k2p", injectedWith(decide.AgentAnnotation, "true")},
			decide.Skip, decide.NodeAgent,
		},
		{
			"the agent's annotation with another value",
			decide.Attachment{"sluice-system", "agent-x7k2p", injectedWith(decide.AgentAnnotation, "no")},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"the agent's annotation in another namespace",
			decide.Attachment{"shop", "x", injectedWith(decide.AgentAnnotation, "true")},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"an excluded namespace",
			decide.Attachment{"kube-system", "coredns-5d78c", nil},
			decide.Skip, decide.NamespaceExcluded,
		},
		{
			"a namespace whose name is a prefix of an excluded one",
			decide.Attachment{"monitoring", "x", nil},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"no annotations are passed",
			decide.Attachment{"shop", "web", map[string]string{}},
			decide.Undecided, decide.PodUnknown,
		},
		{
			"annotations without the injector's status",
			decide.Attachment{
				"shop", "web", map[string]string{"kubernetes.io/config.source": "api"},
			},
			decide.Skip, decide.NotInjected,
		},
		{
			"annotations with the injector's status",
			decide.Attachment{"shop", "web", status},
			decide.Undecided,
			decide.PodUnknown,
		},
		{
			"annotations with mode NONE",
			decide.Attachment{"shop", "web", injectedWith("sidecar.istio.io/interceptionMode", "NONE")},
			decide.Skip, decide.InterceptionNone,
		},
		{
			"a label may take precedence over an annotation that opts out",
			decide.Attachment{"shop", "web", injectedWith("sidecar.istio.io/inject", "false")},
			decide.Undecided, decide.PodUnknown,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decide.Early(test.attachment, &settings)
			if got.Outcome != test.outcome || got.Reason != test.reason || got.Message == "" {
				t.Errorf("decision %v, want %s (%s)", got, test.outcome, test.reason)
			}
		})
	}
}

func TestAgentIsNotRecognizedWithoutItsNamespace(t *testing.T) {
	for _, s := range []decide.Settings{
		{}, {AgentDaemonSet: "sluice-node"}, {AgentNamespace: "sluice-system"},
	} {
		got := decide.Early(decide.Attachment{
			Namespace: "sluice-system", Name: "sluice-node-x7k2p",
		}, &s)
		if got.Outcome != decide.Undecided {
			t.Errorf("settings %+v: decision %v, want undecided", s, got)
		}
	}
}

func TestThePodDecides(t *testing.T) {
	for _, test := range []struct {
		pod     string
		reason  decide.Reason
		message string
	}{
		{"plain", decide.NoProxyContainer, "no container istio-proxy"},
		{"sidecar", decide.MeshPod, "container istio-proxy is its proxy"},
		{"native-sidecar", decide.MeshPod, ""},
		{"tproxy", decide.MeshPod, ""},
		{"openshift", decide.MeshPod, ""},
		{"revisioned", decide.MeshPod, ""},
		{"gateway", decide.ProxyType, `"router"`},
		{"dual-stack", decide.MeshPod, ""},
		{"host-network", decide.HostNetwork, "host's network"},
		{"istio-init", decide.IstioInit, "istio-init"},
		{"disable-envoy", decide.ProxyDisabled, "DISABLE_ENVOY of container istio-proxy is true"},
		{"none", decide.InterceptionNone, "NONE"},
		{"opt-out-label", decide.OptOutLabel, "label sidecar.istio.io/inject is false"},
		{
			"opt-out-annotation", decide.OptOutAnnotation,
			"annotation sidecar.istio.io/inject is false",
		},
		{"opt-in-label", decide.MeshPod, ""},
		{"not-injected", decide.NotInjected, "sidecar.istio.io/status"},
		{"control-plane-before", decide.MeshPod, ""},
		{"control-plane-after", decide.MeshPod, ""},
		{"annotations", decide.MeshPod, ""},
		{"mesh-settings", decide.MeshPod, ""},
		{"wrong", decide.MeshPod, ""},
	} {
		t.Run(test.pod, func(t *testing.T) {
			pod := readPod(t, test.pod)
			got := decide.Decide(decide.Input{Attachment: attachment(pod), Pod: pod}, &settings)
			want := decide.Skip
			if test.reason == decide.MeshPod {
				want = decide.Redirect
			}
			if got.Outcome != want || got.Reason != test.reason ||
				!strings.Contains(got.Message, test.message) {
				t.Errorf("decision %v, want %s (%s) with message %q", got, want, test.reason, test.message)
			}
		})
	}
}

// TestFirstReasonCounts adds reasons to skip a mesh pod one after another, from the one that is
// checked last to the one that is checked first: each must take precedence over the earlier ones.
func TestFirstReasonCounts(t *testing.T) {
	pod := readPod(t, "native-sidecar")
	in := decide.Input{Attachment: attachment(pod), Pod: pod}
	s := settings
	proxy := &pod.Spec.InitContainers[1]
	for _, step := range []struct {
		reason decide.Reason
		change func()
	}{
		{decide.MeshPod, func() {}},
		{decide.NotSelected, func() {
			s.Selectors = []decide.Selector{
				{Pods: &decide.LabelSelector{MatchLabels: map[string]string{"mesh": "yes"}}},
			}
		}},
		{decide.InterceptionNone, func() {
			pod.Metadata.Annotations["sidecar.istio.io/interceptionMode"] = "NONE"
		}},
		{decide.NotInjected, func() {
			delete(pod.Metadata.Annotations, "sidecar.istio.io/status")
		}},
		{decide.OptOutAnnotation, func() {
			pod.Metadata.Annotations["sidecar.istio.io/inject"] = "false"
		}},
		{decide.OptOutLabel, func() { pod.Metadata.Labels["sidecar.istio.io/inject"] = "f" }},
		{decide.ProxyType, func() { proxy.Args[1] = "waypoint" }},
		{decide.ProxyDisabled, func() {
			proxy.Env = append(proxy.Env, decide.EnvVar{Name: "DISABLE_ENVOY", Value: "1"})
		}},
		{decide.IstioInit, func() { pod.Spec.InitContainers[0].Name = "istio-init" }},
		{decide.HostNetwork, func() { pod.Spec.HostNetwork = true }},
		{decide.NamespaceExcluded, func() { in.Attachment.Namespace = "kube-system" }},
		{decide.NodeAgent, func() {
			s.AgentNamespace, in.Name = "kube-system", "sluice-node-abcde"
		}},
		{decide.NotKubernetes, func() { in.Name = "" }},
	} {
		step.change()
		if got := decide.Decide(in, &s); got.Reason != step.reason {
			t.Fatalf("decision %v, want the reason %s", got, step.reason)
		}
	}
}

func TestDetailsOfTheDecision(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(pod *decide.Pod, proxy *decide.Container)
		reason decide.Reason
	}{
		{"a proxy without arguments is a sidecar", func(_ *decide.Pod, c *decide.Container) {
			c.Args = nil
		}, decide.MeshPod},
		{"a proxy without a type is a sidecar", func(_ *decide.Pod, c *decide.Container) {
			c.Args = []string{"proxy"}
		}, decide.MeshPod},
		{
			"an option in place of the type is not a type", func(_ *decide.Pod, c *decide.Container) {
				c.Args = []string{"proxy", "--domain", "x"}
			}, decide.MeshPod,
		},
		{
			"the type router without other arguments", func(_ *decide.Pod, c *decide.Container) {
				c.Args = []string{"proxy", "router"}
			},
			decide.ProxyType,
		},
		{"another command without a type", func(_ *decide.Pod, c *decide.Container) {
			c.Args = []string{"wait", "router"}
		}, decide.MeshPod},
		{"DISABLE_ENVOY is false", func(_ *decide.Pod, c *decide.Container) {
			setVariable(c, "DISABLE_ENVOY", "false")
		}, decide.MeshPod},
		{"DISABLE_ENVOY is not a Boolean", func(_ *decide.Pod, c *decide.Container) {
			setVariable(c, "DISABLE_ENVOY", "yes")
		}, decide.MeshPod},
		{
			"the last of several DISABLE_ENVOY applies", func(_ *decide.Pod, c *decide.Container) {
				setVariable(c, "DISABLE_ENVOY", "true")
				setVariable(c, "DISABLE_ENVOY", "false")
			}, decide.MeshPod,
		},
		{
			"DISABLE_ENVOY of another container", func(pod *decide.Pod, _ *decide.Container) {
				setVariable(&pod.Spec.Containers[0], "DISABLE_ENVOY", "true")
			}, decide.MeshPod,
		},
		{
			"a label that is not a Boolean takes precedence over the annotation", func(
				pod *decide.Pod, _ *decide.Container,
			) {
				pod.Metadata.Labels["sidecar.istio.io/inject"] = "off"
				pod.Metadata.Annotations["sidecar.istio.io/inject"] = "false"
			}, decide.MeshPod,
		},
		{
			"istio-init among the ordinary containers", func(pod *decide.Pod, _ *decide.Container) {
				pod.Spec.Containers[0].Name = "istio-init"
			}, decide.IstioInit,
		},
		{
			"mode NONE only in the validation's arguments", func(
				pod *decide.Pod, _ *decide.Container,
			) {
				delete(pod.Metadata.Annotations, "sidecar.istio.io/interceptionMode")
				pod.Spec.InitContainers[0].Args = []string{"istio-iptables", "-m", "NONE"}
			}, decide.InterceptionNone,
		},
		{
			"mode NONE only in the proxy's environment", func(
				pod *decide.Pod, proxy *decide.Container,
			) {
				delete(pod.Metadata.Annotations, "sidecar.istio.io/interceptionMode")
				pod.Spec.InitContainers[0].Args = nil
				setVariable(proxy, "ISTIO_META_INTERCEPTION_MODE", "NONE")
			}, decide.InterceptionNone,
		},
		{
			"the mode of the annotation takes precedence over the proxy's environment", func(_ *decide.Pod, proxy *decide.Container) {
				setVariable(proxy, "ISTIO_META_INTERCEPTION_MODE", "NONE")
			}, decide.MeshPod,
		},
		{
			"a pod of the agent, recognized by the pod's annotation", func(
				pod *decide.Pod, _ *decide.Container,
			) {
				pod.Metadata.Namespace = "sluice-system"
				pod.Metadata.Annotations[decide.AgentAnnotation] = "true"
			}, decide.NodeAgent,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := readPod(t, "native-sidecar")
			test.change(pod, &pod.Spec.InitContainers[1])
			got := decide.Decide(decide.Input{Attachment: attachment(pod), Pod: pod}, &settings)
			if got.Reason != test.reason {
				t.Errorf("decision %v, want the reason %s", got, test.reason)
			}
		})
	}
}

func setVariable(c *decide.Container, name, value string) {
	c.Env = append(c.Env, decide.EnvVar{Name: name, Value: value})
}

func TestTheProxysContainerHasAConfigurableName(t *testing.T) {
	pod := readPod(t, "sidecar")
	s := decide.Settings{ProxyContainer: "mesh-proxy"}
	in := decide.Input{Attachment: attachment(pod), Pod: pod}
	if got := decide.Decide(in, &s); got.Reason != decide.NoProxyContainer ||
		!strings.Contains(got.Message, "mesh-proxy") {
		t.Errorf("without a container mesh-proxy: %v, want %s", got, decide.NoProxyContainer)
	}
	pod.Spec.Containers[1].Name = "mesh-proxy"
	if got := decide.Decide(in, &s); got.Outcome != decide.Redirect {
		t.Errorf("with a container mesh-proxy: %v, want redirect", got)
	}
}

func TestDecisionWithoutThePodIsUndecided(t *testing.T) {
	got := decide.Decide(decide.Input{Attachment: decide.Attachment{
		Namespace: "shop", Name: "web",
	}}, &settings)
	if got.Outcome != decide.Undecided || got.Reason != decide.PodUnknown {
		t.Errorf("decision %v, want undecided (%s)", got, decide.PodUnknown)
	}
}

// TestEarlyAgreesWithThePod checks that a pod that is skipped because of its annotations would be
// skipped after reading the pod too.
func TestEarlyAgreesWithThePod(t *testing.T) {
	for _, name := range podNames(t) {
		pod := readPod(t, name)
		a := attachment(pod)
		a.Annotations = pod.Metadata.Annotations
		early := decide.Early(a, &settings)
		late := decide.Decide(decide.Input{Attachment: a, Pod: pod}, &settings)
		if early.Outcome == decide.Skip && late.Outcome != decide.Skip {
			t.Errorf("%s: early decision %v, final decision %v, want skip", name, early, late)
		}
	}
}

func TestEachReasonIsListedOnce(t *testing.T) {
	const constants = 17 // of type Reason
	reasons := decide.Reasons()
	slices.Sort(reasons)
	if n := len(slices.Compact(reasons)); n != len(decide.Reasons()) || n != constants {
		t.Errorf("%d different reasons of %d, want %d", n, len(decide.Reasons()), constants)
	}
}

// TestReasonsThatRuleOutIstioInit checks that no decision about a pod with istio-init has a reason
// that implies the absence of istio-init, and checks the list of these reasons.
func TestReasonsThatRuleOutIstioInit(t *testing.T) {
	for _, name := range podNames(t) {
		pod := readPod(t, name)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers,
			decide.Container{Name: "istio-init"})
		a := attachment(pod)
		late := decide.Decide(decide.Input{Attachment: a, Pod: pod}, &settings)
		a.Annotations = pod.Metadata.Annotations
		for _, d := range []decide.Decision{decide.Early(a, &settings), late} {
			if d.Reason.ImpliesNoIstioInit() {
				t.Errorf("%s: %v, although the pod has istio-init", name, d)
			}
		}
	}
	want := []decide.Reason{
		decide.NoProxyContainer, decide.ProxyDisabled, decide.ProxyType, decide.OptOutLabel,
		decide.OptOutAnnotation, decide.NotSelected,
	}
	got := slices.DeleteFunc(decide.Reasons(), func(r decide.Reason) bool {
		return !r.ImpliesNoIstioInit()
	})
	if !slices.Equal(got, want) {
		t.Errorf("reasons that imply no istio-init: %v, want %v", got, want)
	}
}

func TestDecisionOnOneLine(t *testing.T) {
	d := decide.Early(decide.Attachment{Namespace: "kube-system", Name: "x"}, &settings)
	if got, want := d.String(),
		"skip (namespace-excluded): the configuration excludes namespace kube-system"; got != want {
		t.Errorf("decision %q, want %q", got, want)
	}
}
