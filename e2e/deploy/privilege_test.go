package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/rbactest"
)

func capabilities(t *testing.T, deployed objects) []string {
	t.Helper()
	var names []string
	for _, c := range deployed.agent(t).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		names = append(names, string(c))
	}
	return names
}

func job(t *testing.T, hooks objects) *batch.Job {
	t.Helper()
	j, ok := hooks["Job/sluice-node"].(*batch.Job)
	if !ok {
		t.Fatal("no uninstall job")
	}
	return j
}

func TestFeaturesRequestOnlyNeededPrivileges(t *testing.T) {
	const directories = "identity cni-bin cni-conf run state cni-cache"
	for _, c := range []struct{ reason, values, capabilities, volumes string }{
		{
			"defaults", "{}",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE",
			directories + " netns proc",
		},
		{
			"installation only: no access to pods", "{audit: {enabled: false}, repair: {enabled: false}}",
			"DAC_OVERRIDE", directories,
		},
		{
			"deletion: no access to pods",
			"{audit: {enabled: false}, repair: {repairPods: false, deletePods: true}}",
			"DAC_OVERRIDE", directories,
		},
		{
			"repair without audit: no notifications", "audit: {enabled: false}",
			"DAC_OVERRIDE NET_ADMIN NET_RAW SYS_ADMIN SYS_PTRACE", directories + " netns proc",
		},
		{
			"nftables only: no raw socket", "backend: nft",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST SYS_ADMIN SYS_PTRACE", directories + " netns proc",
		},
		{
			"ambient mode with nftables: rules of running pods and of the node are moved from iptables-legacy",
			"{backend: nft, profile: ambient}",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE", directories + " netns proc ztunnel",
		},
		{
			"no search of /proc", "searchProc: false",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN", directories + " netns",
		},
		{
			"no mount of network namespaces", "mountNetns: false",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE", directories + " proc",
		},
		{
			"directories owned by root", "dacOverride: false",
			"NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE", directories + " netns proc",
		},
		{
			"ambient mode only: access to pods and node, notifications, directory of ztunnel",
			"{profile: ambient, audit: {enabled: false}, repair: {enabled: false}}",
			"DAC_OVERRIDE NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE",
			directories + " netns proc ztunnel",
		},
		{
			"ambient mode uses /proc even without searchProc",
			"{profile: ambient, searchProc: false, backend: nft, dacOverride: false}",
			"NET_ADMIN NET_BROADCAST NET_RAW SYS_ADMIN SYS_PTRACE", directories + " netns proc ztunnel",
		},
		{
			"minimum", "{audit: {enabled: false}, repair: {enabled: false}, dacOverride: false}",
			"", directories,
		},
	} {
		deployed, _ := render(t, c.values, deploy.Options{})
		if got := strings.Join(capabilities(t, deployed), " "); got != c.capabilities {
			t.Errorf("%s: capabilities %s, want %s", c.reason, got, c.capabilities)
		}
		spec := deployed.agent(t).Spec.Template.Spec
		var volumes, mounts []string
		for _, v := range spec.Volumes {
			volumes = append(volumes, v.Name)
		}
		for _, m := range spec.Containers[0].VolumeMounts {
			mounts = append(mounts, m.Name)
		}
		if got := strings.Join(volumes, " "); got != c.volumes || !slices.Equal(volumes, mounts) {
			t.Errorf("%s: volumes %s, mounts %s, want %s", c.reason, got, mounts, c.volumes)
		}
	}
}

// TestPermissionsFollowFeatures checks the permissions of the agent's roles. A test of package
// agent compares them with the agent's requests.
func TestPermissionsFollowFeatures(t *testing.T) {
	for _, c := range rbactest.Configurations() {
		deployed, _ := render(t, c.Values, deploy.Options{})
		got := deployed.permissions()
		slices.Sort(got)
		want := slices.Sorted(slices.Values(c.Permissions))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: permissions (-want +got)\n%s", c.Reason, diff)
		}
		environment := deployed.environment(t)
		for name, want := range c.Environment {
			if environment[name] != want {
				t.Errorf("%s: %s is %q, want %q", c.Reason, name, environment[name], want)
			}
		}
	}
}

func TestContainersAreConfined(t *testing.T) {
	deployed, hooks := render(t, "{}", deploy.Options{})
	ambient, _ := render(t, "profile: ambient", deploy.Options{})
	pods := map[string]core.PodSpec{
		"agent": deployed.agent(t).Spec.Template.Spec, "hook": job(t, hooks).Spec.Template.Spec,
		"agent in ambient mode": ambient.agent(t).Spec.Template.Spec,
	}
	for name, pod := range pods {
		if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Containers) != 1 {
			t.Errorf("%s shares a namespace of the node or has several containers: %+v", name, pod)
		}
		s := pod.Containers[0].SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
			s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
			!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s has too many privileges: %+v", name, s)
		}
	}
	for _, m := range pods["agent"].Containers[0].VolumeMounts {
		if want := slices.Contains([]string{"proc", "netns", "cni-cache", "identity"},
			m.Name); want != m.ReadOnly {
			t.Errorf("mount %s: readOnly is %v, want %v", m.Name, m.ReadOnly, want)
		}
	}
	if hook := pods["hook"]; !*hook.Containers[0].SecurityContext.RunAsNonRoot ||
		len(hook.Volumes) > 0 {
		t.Errorf("the hook may run as root or has volumes: %+v", hook)
	}
}

func TestConfinementIsConfigurable(t *testing.T) {
	deployed, _ := render(t,
		"{seccompProfile: {type: Localhost, localhostProfile: p.json}, seLinuxOptions: {level: s0}}", deploy.Options{})
	s := deployed.agent(t).Spec.Template.Spec.Containers[0].SecurityContext
	if s.SeccompProfile.Type != core.SeccompProfileTypeLocalhost ||
		*s.SeccompProfile.LocalhostProfile != "p.json" {
		t.Errorf("seccomp profile %+v, want the local profile p.json", s.SeccompProfile)
	}
	if s.SELinuxOptions.Type != "spc_t" || s.SELinuxOptions.Level != "s0" {
		t.Errorf("SELinux options %+v, want type spc_t and level s0", s.SELinuxOptions)
	}
}

// Of the agent's features, AppArmor's default profile prevents only the search of /proc and ambient
// mode.
func TestAppArmorIsDisabledOnlyToReadProc(t *testing.T) {
	const annotation = "container.apparmor.security.beta.kubernetes.io/sluice-node"
	for _, c := range []struct {
		values            string
		annotation, field bool
	}{
		{"{}", true, false},
		{"useAppArmorAnnotation: false", false, true},
		{"searchProc: false", false, false},
		{"{useAppArmorAnnotation: false, searchProc: false}", false, false},
		{"{profile: ambient, searchProc: false}", true, false},
	} {
		deployed, _ := render(t, c.values, deploy.Options{})
		pod := deployed.agent(t).Spec.Template
		_, annotated := pod.Annotations[annotation]
		field := pod.Spec.Containers[0].SecurityContext.AppArmorProfile != nil
		if annotated != c.annotation || field != c.field {
			t.Errorf("%s: annotation %v, field %v, want annotation %v, field %v", c.values, annotated, field,
				c.annotation, c.field)
		}
	}
}

// As in istio-cni's chart, a profile of podAnnotations replaces the default. Its key may contain
// the name of istio-cni's container. The pod would be invalid with another profile in the field.
func TestAppArmorProfileOfPodAnnotations(t *testing.T) {
	const annotation = "container.apparmor.security.beta.kubernetes.io/"
	for _, container := range []string{"install-cni", "sluice-node"} {
		for _, values := range []string{"", "useAppArmorAnnotation: false, "} {
			values = "{" + values + "podAnnotations: {" + annotation + container + ": runtime/default}}"
			deployed, _ := render(t, values, deploy.Options{})
			pod := deployed.agent(t).Spec.Template
			profiles := map[string]string{}
			for name, value := range pod.Annotations {
				if strings.HasPrefix(name, annotation) {
					profiles[name] = value
				}
			}
			want := map[string]string{annotation + pod.Spec.Containers[0].Name: "runtime/default"}
			if diff := cmp.Diff(want, profiles); diff != "" {
				t.Errorf("%s: annotations (-want +got)\n%s", values, diff)
			}
			if field := pod.Spec.Containers[0].SecurityContext.AppArmorProfile; field != nil {
				t.Errorf("%s: the field is %v, want none", values, field.Type)
			}
		}
	}
}

func TestNetworkPolicyAdmitsProbesAndTheAPIServer(t *testing.T) {
	deployed, _ := render(t, `{global: {networkPolicy: {enabled: true}}, healthPort: 8001,
		networkPolicy: {apiServerPorts: [6443], apiServerCIDRs: [10.0.0.1/32]}}`, deploy.Options{})
	p, ok := deployed["NetworkPolicy/sluice-node"].(*networking.NetworkPolicy)
	if !ok {
		t.Fatal("no NetworkPolicy sluice-node")
	}
	ports := func(list []networking.NetworkPolicyPort) (ports []int) {
		for _, p := range list {
			ports = append(ports, p.Port.IntValue())
		}
		return ports
	}
	if len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Ingress) != 1 || len(p.Spec.Egress) != 1 {
		t.Fatalf("policy %+v, want one rule for each direction", p.Spec)
	}
	if diff := cmp.Diff([]int{8001, 15014}, ports(p.Spec.Ingress[0].Ports)); diff != "" {
		t.Errorf("ports of the ingress rule (-want +got)\n%s", diff)
	}
	out := p.Spec.Egress[0]
	if diff := cmp.Diff([]int{6443}, ports(out.Ports)); diff != "" || len(out.To) != 1 ||
		out.To[0].IPBlock.CIDR != "10.0.0.1/32" {
		t.Errorf("egress to %+v, want port 6443 of 10.0.0.1/32: %s", out.To, diff)
	}
	pods := deployed.agent(t).Spec.Template.Labels
	for k, v := range p.Spec.PodSelector.MatchLabels {
		if pods[k] != v {
			t.Errorf("the policy selects %s=%s, the pods have %q", k, v, pods[k])
		}
	}
}
