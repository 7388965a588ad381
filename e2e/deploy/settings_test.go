package deploy_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// goVariables are environment variables of Go's runtime.
var goVariables = []string{"GOMEMLIMIT", "GOMAXPROCS"}

func TestAgentAcceptsTheChartsSettings(t *testing.T) {
	for _, values := range []string{"{}", "platform: openshift", "profile: ambient", `{
		ambient: {enabled: true, enablementSelectors: [{podSelector: {matchLabels: {a: b}}}],
			dnsCapture: false, ipv6: false},
		cniConfFileName: 10-calico.conflist, istioOwnedCNIConfig: true,
		istioOwnedCNIConfigFileName: 01-a.conflist, excludeNamespaces: [a, b],
		deviationsOff: [nat-first], startupTaint: cni.istio.io/not-ready,
		enablementSelectors: [{podSelector: {matchLabels: {a: b}}}],
		env: {HOST_PROBE_SNAT_IP: 169.254.9.9, KUBECONFIG_MODE: "0640",
			REPAIR_INIT_CONTAINER_EXIT_CODE: 1, HTTPS_PROXY: "http://proxy"}}`} {
		deployed, _ := render(t, values, deploy.Options{})
		environment := deployed.environment(t)
		if _, err := settings.Read(func(name string) (string, bool) {
			v, set := environment[name]
			return v, set
		}); err != nil {
			t.Errorf("%s: %v", values, err)
		}
		for _, name := range append(goVariables, "HTTPS_PROXY") {
			delete(environment, name)
		}
		for name := range environment {
			if _, known := settings.Find(name); !known {
				t.Errorf("%s: the chart sets the unknown variable %s", values, name)
			}
		}
	}
}

func TestChartAndAgentHaveTheSameDefaults(t *testing.T) {
	deployed, _ := render(t, "{}", deploy.Options{})
	environment := deployed.environment(t)
	for _, s := range settings.All() {
		want := s.Default
		if s.Chart != "" {
			want = s.Chart
		}
		got, set := environment[s.Env]
		switch {
		case s.Required && !set:
			t.Errorf("%s is not set in the chart, want a value", s.Env)
		case s.Fixed && got == "from the pod":
		case s.Required, !set && s.Chart == "" && (s.Helm == "" || s.Default == ""):
		case !set && s.Env == "ISTIO_OWNED_CNI_CONFIG_FILENAME": // the key is empty by default in Istio's chart, too
		case got != want:
			t.Errorf("%s is %q in the chart, want %q", s.Env, got, want)
		}
	}
}

func TestEveryKeySetsItsVariable(t *testing.T) {
	// Some keys require another key.
	requiredKeys := map[string]string{
		"istioOwnedCNIConfigFileName": "istioOwnedCNIConfig=true",
		"uninstallTimeout":            "terminationGracePeriodSeconds=60",
		"ambient.enablementSelectors": "ambient.enabled=true",
	}
	for _, s := range settings.All() {
		if s.Helm == "" {
			continue
		}
		for _, prefix := range []string{"", "cni."} {
			values := map[string]any{}
			if err := setKey(prefix+s.Helm, s, values); err != nil {
				t.Fatalf("%s: %v", s.Helm, err)
			}
			if extra := requiredKeys[s.Helm]; extra != "" {
				if err := strvals.ParseInto(extra, values); err != nil {
					t.Fatal(err)
				}
			}
			r, err := deploy.Render(values, deploy.Options{})
			if err != nil {
				t.Errorf("%s%s=%s: %v", prefix, s.Helm, s.Example, err)
				continue
			}
			if got := decodeAll(t, r.Objects).environment(t)[s.Env]; got != s.Example {
				t.Errorf("%s%s=%s: %s is %q, want the value of the key", prefix, s.Helm, s.Example, s.Env,
					got)
			}
		}
	}
}

// setKey sets a key to the setting's example, like Helm's flags --set, --set-json and --set-string.
func setKey(key string, s settings.Setting, values map[string]any) error {
	switch s.Kind.Want {
	case settings.Names.Want, parameter.Deviation.Allowed():
		return strvals.ParseInto(key+"={"+s.Example+"}", values)
	case settings.JSONList.Want:
		return strvals.ParseJSON(key+"="+s.Example, values)
	case settings.Text.Want:
		return strvals.ParseIntoString(key+"="+s.Example, values)
	}
	return strvals.ParseInto(key+"="+s.Example, values)
}

// As for istio-cni, values of labels may be written without quotes. The agent accepts the result.
func TestLabelsThatAreNotStringsInYAML(t *testing.T) {
	const (
		selectors = "[{podSelector: {matchLabels: {mesh: true, size: 1500000}}}, {podSelector: {}, namespaceSelector: " +
			"{matchExpressions: [{key: a, operator: In, values: [1, b, false]}, {key: c, operator: Exists}]}}]"
		want = `[{"podSelector":{"matchLabels":{"mesh":"true","size":"1500000"}}},` +
			`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["1","b","false"]},` +
			`{"key":"c","operator":"Exists"}]},"podSelector":{}}]`
	)
	deployed, _ := render(t, "{enablementSelectors: "+selectors+
		", ambient: {enabled: true, enablementSelectors: "+selectors+"}}", deploy.Options{})
	environment := deployed.environment(t)
	for _, name := range []string{"SLUICE_ENABLEMENT_SELECTORS", "AMBIENT_ENABLEMENT_SELECTOR"} {
		if got := environment[name]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		if !settings.JSONList.Allows(environment[name]) {
			t.Errorf("%s: the agent rejects %s", name, environment[name])
		}
	}
}

func TestAlternativeKeys(t *testing.T) {
	for _, c := range []struct{ reason, values, variable, want string }{
		{"Istio's value for nftables", "global: {nativeNftables: true}", "SLUICE_BACKEND", "nft"},
		{"global log level", "global: {logging: {level: warn}}", "SLUICE_LOG_LEVEL", "warn"},
		{
			"own level overrides the global level",
			"{logging: {level: debug}, global: {logging: {level: warn}}}", "SLUICE_LOG_LEVEL",
			"debug",
		},
		{
			"the most verbose of Istio's scopes",
			"logging: {level: 'default:warn,cni-agent:debug,all:error'}", "SLUICE_LOG_LEVEL",
			"debug",
		},
		{"no excluded namespaces", "excludeNamespaces: []", "EXCLUDE_NAMESPACES", ""},
		{
			"cni.chained overrides chained", "{chained: true, cni: {chained: false}}",
			"CHAINED_CNI_PLUGIN", "false",
		},
		{"metrics disabled", "monitoringPort: 0", "MONITORING_PORT", "0"},
	} {
		deployed, _ := render(t, c.values, deploy.Options{})
		if got := deployed.environment(t)[c.variable]; got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.reason, c.variable, got, c.want)
		}
	}
}

func TestPodsAreReplacedWhenSettingsChange(t *testing.T) {
	sum := func(values string) string {
		deployed, _ := render(t, values, deploy.Options{})
		return deployed.agent(t).Spec.Template.Annotations["checksum/config"]
	}
	if sum("{}") != sum("{ownerName: x}") {
		t.Error("a label that is no setting changes the pod template")
	}
	if sum("{}") == sum("{backend: nft}") {
		t.Error("another backend does not change the pod template")
	}
}

func TestImageNames(t *testing.T) {
	digest := strings.Repeat("0f", 32)
	for _, c := range []struct{ reason, values, want string }{
		{"chart's default", "{}", "ghcr.io/sluice-mesh/sluice:0.1.0"},
		{
			"global mirror", "global: {hub: registry.corp/mesh, tag: v2}",
			"registry.corp/mesh/sluice:v2",
		},
		{
			"own hub overrides the global hub",
			"{hub: a.b/c, tag: 1.5, global: {hub: registry.corp/mesh, tag: v2}}",
			"a.b/c/sluice:1.5",
		},
		{"tag of digits only", "tag: 44624469", "ghcr.io/sluice-mesh/sluice:44624469"},
		{"image with a slash is a full name", "image: a.b/c/d@sha256:00", "a.b/c/d@sha256:00"},
		{
			"digest", "digest: sha256:" + digest,
			"ghcr.io/sluice-mesh/sluice:0.1.0@sha256:" + digest,
		},
		{
			"mirror with digest", "{hub: a.b/c, digest: sha256:" + digest + "}",
			"a.b/c/sluice:0.1.0@sha256:" + digest,
		},
		{
			"tag overrides the digest", "{tag: v2, digest: sha256:" + digest + "}",
			"ghcr.io/sluice-mesh/sluice:v2",
		},
		{
			"distroless variant", "global: {variant: distroless}",
			"ghcr.io/sluice-mesh/sluice:0.1.0",
		},
	} {
		deployed, hooks := render(t, c.values, deploy.Options{})
		if got := deployed.agent(t).Spec.Template.Spec.Containers[0].Image; got != c.want {
			t.Errorf("%s: agent has the image %s, want %s", c.reason, got, c.want)
		}
		if got := job(t, hooks).Spec.Template.Spec.Containers[0].Image; got != c.want {
			t.Errorf("%s: hook has the image %s, want %s", c.reason, got, c.want)
		}
	}
}

func TestRejectedValues(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{
			"{profile: ambient, serve: {enabled: false}}",
			"ambient.enabled: the plugin asks the agent to enroll pods, which needs serve.enabled=true",
		},
		{
			"ambient: {enabled: true, shareHostNetworkNamespace: true}",
			"ambient.shareHostNetworkNamespace: is not supported",
		},
		{
			"cni: {ambient: {enabled: true, reconcileIptablesOnStartup: false}}",
			"ambient.reconcileIptablesOnStartup: cannot be disabled",
		},
		{
			"{profile: ambient, unreadablePods: skip, ambient: {enableAmbientDetectionRetry: true}}",
			"ambient.enableAmbientDetectionRetry: contradicts unreadablePods=skip",
		},
		{
			"{profile: ambient, ambient: {configDir: /etc/ambient-config}}",
			"ambient.configDir: is not read by Istio either",
		},
		{
			"{profile: ambient, mountNetns: false, searchProc: false, audit: {enabled: false}}",
			"mountNetns and searchProc: audit, repair in place and ambient mode need one of them",
		},
		{
			"profile: openshift",
			"profile openshift: is a platform; set platform=openshift and omit profile",
		},
		{
			"global: {profile: platform-k3s}",
			"profile platform-k3s: is a platform; set platform=k3s and omit profile",
		},
		{
			"profile: embedded",
			`profile "embedded": is not one of Istio's profiles; must be one of ambient, default, demo`,
		},
		{
			"platform: nomad",
			`platform "nomad": must be one of aks, bottlerocket, eks, gke, iks, k3d, k3s, microk8s, minikube, openshift, talos`,
		},
		{"platform: default", `platform "default": must be one of`},
		{"global: {hub: docker.io/istio}", `hub "docker.io/istio": contains Istio's images`},
		{
			"hub: registry.istio.io/release",
			`hub "registry.istio.io/release": contains Istio's images`,
		},
		{"hub: gcr.io/istio-release", `hub "gcr.io/istio-release": contains Istio's images`},
		{"tag: 1.29.2", "tag 1.29.2: is a version of Istio"},
		{
			"global: {hub: registry.corp/istio, tag: 1.30-alpha.86c9f01}",
			"tag 1.30-alpha.86c9f01: is a version of Istio",
		},
		{
			"_internal_defaults_do_not_set: {hub: a.b}",
			"_internal_defaults_do_not_set: contains the defaults of istio-cni's chart",
		},
		{
			"{profile: ambient, ambient: {enabled: false}}",
			"ambient.enabled false: istio-cni's chart ignores this value with profile=ambient",
		},
		{
			"{platform: openshift, chained: true}",
			"chained true: istio-cni's chart ignores this value with platform=openshift, and uses false",
		},
		{
			"{global: {platform: k3s}, cniBinDir: /opt/cni/bin, cniConfDir: /etc/cni/net.d}",
			"cniBinDir /opt/cni/bin: istio-cni's chart ignores this value with platform=k3s, and uses " +
				"/var/lib/rancher/k3s/data/cni",
		},
		{
			"{platform: gke, resourceQuotas: {enabled: false}}",
			"resourceQuotas.enabled false: istio-cni's chart ignores this value with platform=gke",
		},
		{
			"pilot: {taint: {enabled: true}}",
			"pilot.taint.enabled true: istiod removes the taint of a new node only if a pod of istio-cni " +
				"is ready there; set startupTaint=cni.istio.io/not-ready",
		},
		{"pilot: {taint: {enabled: true, name: a.b/c}}", "set startupTaint=a.b/c"},
		{"image: install-cni", `image "install-cni": is Istio's installer`},
		{
			"image: docker.io/istio/install-cni:1.30.0",
			`image "docker.io/istio/install-cni:1.30.0": is Istio's installer`,
		},
		{"global: {variant: debug}", `variant "debug": there is only one image`},
		{"repair: {hub: a.b}", "repair.hub and repair.tag: repairs have no separate image"},
		{
			"{backend: legacy, global: {nativeNftables: true}}",
			"backend legacy: contradicts global.nativeNftables",
		},
		{
			"{platform: openshift, istioOwnedCNIConfig: true}",
			"istioOwnedCNIConfig: adds the plugin to a copy of the primary configuration",
		},
		{
			"{chained: false, cniConfFileName: 10-mesh.conflist}",
			"cniConfFileName 10-mesh.conflist: with chained=false the file contains a single plugin",
		},
		{
			"{platform: openshift, cniConfFileName: 10-mesh.conflist}",
			"cniConfFileName 10-mesh.conflist: with chained=false the file contains a single plugin",
		},
		{
			"{mountNetns: false, searchProc: false}",
			"mountNetns and searchProc: audit, repair in place and ambient mode need one of them",
		},
		{
			"terminationGracePeriodSeconds: 19",
			"uninstallTimeout 15s: must be at least 5s less than terminationGracePeriodSeconds, 19",
		},
		{
			"{profile: ambient, terminationGracePeriodSeconds: 29}",
			"uninstallTimeout 15s: must be at least 15s less than terminationGracePeriodSeconds, 29, after which " +
				"the pod is killed; uninstallation has other steps, which may need 15s in ambient mode",
		},
		{
			"{profile: ambient, uninstallTimeout: 15001ms}",
			"uninstallTimeout 15001ms: must be at least 15s less",
		},
		{
			"{uninstallTimeout: 1m, terminationGracePeriodSeconds: 64}",
			"uninstallTimeout 1m: must be at least 5s less than terminationGracePeriodSeconds, 64",
		},
		{
			"terminationGracePeriodSeconds: 3",
			"uninstallTimeout 15s: must be at least 5s less than terminationGracePeriodSeconds, 3",
		},
		{"uninstallTimeout: 25001ms", "uninstallTimeout 25001ms: must be at least 5s less"},
		{"uninstallTimeout: 0.5h", "uninstallTimeout 0.5h: must be at least 5s less"},
		{"uninstallTimeout: 20s6s", "uninstallTimeout 20s6s: must be at least 5s less"},
		{
			"updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
			"updateStrategy.rollingUpdate.maxSurge 1: two agents on one node",
		},
		{
			"updateStrategy: {rollingUpdate: {maxSurge: 10%}}",
			"updateStrategy.rollingUpdate.maxSurge 10%: two agents on one node",
		},
		{
			"{mountNetns: false, searchProc: false, audit: {enabled: false}}",
			"mountNetns and searchProc: audit, repair in place and ambient mode need one of them",
		},
		{
			"{podMonitor: {enabled: true}, monitoringPort: 0}",
			"podMonitor.enabled: needs the metrics of the agents; set monitoringPort to a port, or omit podMonitor.enabled",
		},
		{
			"{prometheusRule: {enabled: true}, monitoringPort: 0}",
			"prometheusRule.enabled: needs the metrics of the agents",
		},
		{"monitoringPort: 8000", "monitoringPort 8000: must differ from healthPort"},
		{
			"{monitoringPort: 9000, healthPort: 9000}",
			"monitoringPort 9000: must differ from healthPort",
		},
		{
			"cniBinDir: /",
			"cniBinDir /: is a system directory, which would be mounted into the agent; must be a directory for CNI only",
		},
		{"cniBinDir: /opt/..", "cniBinDir /opt/..: is a system directory"},
		{"cniConfDir: /etc/", "cniConfDir /etc/: is a system directory"},
		{"cniCacheDir: /var/lib", "cniCacheDir /var/lib: is a system directory"},
		{
			"resources: {limits: {memory: 191Mi}}",
			"resources.limits.memory 191Mi: is not enough for the agent; must be at least 192Mi",
		},
		{
			"resources: {requests: {memory: 300Mi}, limits: {memory: 250Mi}}",
			"resources.requests.memory 300Mi: is more than resources.limits.memory, 250Mi",
		},
		{
			"resources: {requests: {cpu: 200m}, limits: {cpu: 0.1}}",
			"resources.requests.cpu 200m: is more than resources.limits.cpu, 0.1",
		},
		{
			"resources: {limits: {cpu: 10m}}",
			"resources.requests.cpu 20m: is more than resources.limits.cpu, 10m",
		},
		{
			"resources: {requests: {ephemeral-storage: 2Pi}, limits: {ephemeral-storage: 2P}}",
			"resources.requests.ephemeral-storage 2Pi: is more than resources.limits.ephemeral-storage, 2P",
		},
		{
			"resources: {requests: {cpu: two, memory: 100MB}}",
			"resources.requests.cpu two: must be a quantity, such as 100m or 256Mi\n  " +
				"values.resources.requests.memory 100MB: must be a quantity",
		},
		{
			"resources: {limits: {memory: 100000000}}",
			"resources.limits.memory 1e+08: is not enough for the agent",
		},
		{
			"resources: {limits: {memory: 0.1Gi}}",
			"resources.limits.memory 0.1Gi: is not enough for the agent",
		},
		{
			"{resources: null, global: {defaultResources: {limits: {memory: 50M}}}}",
			"resources.limits.memory 50M: is not enough for the agent",
		},
		{
			"env: {REPAIR_ENABLED: false}",
			"env.REPAIR_ENABLED: set the value repair.enabled instead",
		},
		{"env: {NODE_NAME: a}", "env.NODE_NAME: cannot be set here"},
		{
			"env: {SLUICE_AUDIT_INTERVALL: 5s}",
			"env.SLUICE_AUDIT_INTERVALL: is not a variable of the agent",
		},
		{"env: {REPAIR_DELETE: true}", "env.REPAIR_DELETE: is not a variable of the agent"},
		{"env: {AMBIENT_IP6: true}", "env.AMBIENT_IP6: is not a variable of the agent"},
		{"env: {ISTIO_OWNED_CNI: true}", "env.ISTIO_OWNED_CNI: is not a variable of the agent"},
		{
			"env: {KUBERNETES_NODE_NAME: a}",
			"env.KUBERNETES_NODE_NAME: is only printed by Istio; the name of the node is NODE_NAME",
		},
		{
			"env: {AMBIENT_ENABLED: true}",
			"env.AMBIENT_ENABLED: set the value ambient.enabled instead",
		},
		{"env: {ZTUNNEL_UDS_ADDRESS: /run/z}", "env.ZTUNNEL_UDS_ADDRESS: cannot be set here"},
		{
			"env: {AMBIENT_RECONCILE_POD_RULES_ON_STARTUP: true}",
			"env.AMBIENT_RECONCILE_POD_RULES_ON_STARTUP: is not supported",
		},
		{
			"env: {AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE: true}",
			"env.AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE: is not supported",
		},
		{
			"logging: {level: loud}",
			`logging.level "loud": must be debug, info, warn, error, fatal, none`,
		},
		{"cni: {audit: null}", "/cni/audit"},
		{
			"{backend: legacy, repair: {tag: a}, global: {nativeNftables: true}}",
			"\n  values.backend legacy: contradicts",
		},
		{
			"podAnnotations: {container.apparmor.security.beta.kubernetes.io/istio-cni: unconfined}",
			"podAnnotations.container.apparmor.security.beta.kubernetes.io/istio-cni: names no container of the pod; " +
				"must end in /install-cni or /sluice-node",
		},
		{
			"podAnnotations: {container.apparmor.security.beta.kubernetes.io/install-cni: a, " +
				"container.apparmor.security.beta.kubernetes.io/sluice-node: b}",
			"podAnnotations.container.apparmor.security.beta.kubernetes.io/install-cni: means the same container as " +
				"container.apparmor.security.beta.kubernetes.io/sluice-node; omit one of them",
		},
		{
			`{profile: ambient, compatibilityVersion: "1.28"}`,
			"compatibilityVersion 1.28: means ambient.reconcileIptablesOnStartup=false in istio-cni's chart; " +
				"set cni.ambient.reconcileIptablesOnStartup=true, or omit compatibilityVersion",
		},
		{
			"{profile: ambient, compatibilityVersion: 1.25, ambient: {reconcileIptablesOnStartup: true}}",
			"compatibilityVersion 1.25: means ambient.reconcileIptablesOnStartup=false in istio-cni's chart; " +
				"set cni.ambient.reconcileIptablesOnStartup=true, or omit compatibilityVersion\n  " +
				"values.compatibilityVersion 1.25: means ambient.shareHostNetworkNamespace=true in istio-cni's chart; " +
				"set cni.ambient.shareHostNetworkNamespace=false, or omit compatibilityVersion",
		},
		{
			`{cni: {ambient: {enabled: true}}, compatibilityVersion: "1.24"}`,
			"compatibilityVersion 1.24: means ambient.dnsCapture=false in istio-cni's chart; " +
				"set cni.ambient.dnsCapture, or omit compatibilityVersion",
		},
		{
			`compatibilityVersion: "9.9"`,
			"compatibilityVersion 9.9: must be a version of Istio in quotes, such as \"1.30\", or empty",
		},
		{"compatibilityVersion: 1.30", "compatibilityVersion 1.3: must be a version of Istio in quotes"},
		{
			"rollingMaxUnavailable: 2",
			"rollingMaxUnavailable: is a key of earlier versions of istio-cni's chart; " +
				"set updateStrategy.rollingUpdate.maxUnavailable instead",
		},
		{"cni: {logLevel: debug}", "logLevel: is a key of earlier versions of istio-cni's chart; set logging.level instead"},
		{
			"{psp_cluster_role: enabled, privileged: false, taint: {enabled: true}, repair: {createEvents: ''}}",
			"privileged: is a key of earlier versions of istio-cni's chart; omit it: the agent is never privileged\n  " +
				"values.psp_cluster_role: is a key of earlier versions of istio-cni's chart; " +
				"omit it: Kubernetes no longer has PodSecurityPolicy\n  " +
				"values.repair.createEvents: is a key of earlier versions of istio-cni's chart; " +
				"omit it: the agent always reports events\n  " +
				"values.taint: is a key of earlier versions of istio-cni's chart; set startupTaint instead",
		},
		{
			"ambient: {redirectMode: ebpf}",
			"ambient.redirectMode: is a key of earlier versions of istio-cni's chart; " +
				"omit it: pods are redirected by rules in their network namespaces",
		},
		{
			"{cniBinDir: opt/cni/bin, excludeNamespaces: [kube-system, Foo, '']}",
			"cniBinDir opt/cni/bin: must be an absolute path\n  values.excludeNamespaces Foo: must be a Kubernetes name: " +
				"1 to 63 characters of a-z, 0-9, - and ., with a letter or digit at both ends\n  " +
				"values.excludeNamespaces : must be a Kubernetes name",
		},
		{
			"cni: {cniConfFileName: 10-calico}",
			"cniConfFileName 10-calico: must be a file name without a directory that ends in .conf or .conflist",
		},
		{
			"cniConfFileName: /etc/cni/net.d/10-calico.conflist",
			"cniConfFileName /etc/cni/net.d/10-calico.conflist: must be a file name without a directory",
		},
		{
			"{istioOwnedCNIConfig: true, istioOwnedCNIConfigFileName: 01-mesh.conf}",
			"istioOwnedCNIConfigFileName 01-mesh.conf: must be a file name without a directory that ends in .conflist",
		},
		{"repair: {brokenPodLabelKey: a b}", "repair.brokenPodLabelKey a b: must be a qualified name"},
		{"repair: {brokenPodLabelValue: a/b}", "repair.brokenPodLabelValue a/b: must be at most 63 letters"},
		{
			"repair: {initContainerName: Validation}",
			"repair.initContainerName Validation: must be a Kubernetes name",
		},
		{"startupTaint: 'a:NoSchedule'", "startupTaint a:NoSchedule: must be the key of a taint"},
		{"apiBudget: 10 s", "apiBudget 10 s: must be a duration from 100ms to 2m"},
		{"audit: {interval: ''}", "audit.interval : must be a duration from 100ms to 24h"},
		// Rejected by the schema.
		{"excludedNamespaces: [a]", "excludedNamespaces"},
		{"cni: {repair: {enable: true}}", "enable"},
		{"chained: 'false'", "chained"},
		{"provider: calico", "provider"},
		{"apiBudget: 10", "apiBudget"},
		{"cniCacheDir: ''", "/cniCacheDir"},
		{
			"enablementSelectors: [{podSelector: {matchLabels: {a b: c}}}]",
			"/enablementSelectors/0/podSelector/matchLabels': additional properties 'a b'",
		},
		{
			"enablementSelectors: [{podSelector: {matchLabels: {a: b c}}}]",
			"/enablementSelectors/0/podSelector/matchLabels/a",
		},
		{
			"ambient: {enablementSelectors: [{namespaceSelector: {matchExpressions: [{key: a, operator: In, values: [b/c]}]}}]}",
			"/ambient/enablementSelectors/0/namespaceSelector/matchExpressions/0/values/0",
		},
		{"global: {resourceScope: cluster-wide}", "resourceScope"},
		{"backend: iptables", "backend"},
		{"deviationsOff: [nat-last]", "deviationsOff"},
		{"ambient: {enabled: yes please}", "/ambient/enabled"},
		{"ambient: {enablementSelectors: [{labels: {a: b}}]}", "labels"},
		{"ambient: {dnsCaptur: true}", "dnsCaptur"},
		{"networkPolicy: {apiServerPorts: []}", "apiServerPorts"},
	} {
		_, err := deploy.Render(parse(t, c.values), deploy.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.values, err, c.want)
		}
	}
}

// The chart accepts exactly the durations that the agent accepts.
func TestChartRejectsInvalidDurations(t *testing.T) {
	durations := 0
	for _, s := range settings.All() {
		if s.Helm == "" || !strings.HasPrefix(s.Kind.Want, "a duration ") {
			continue
		}
		durations++
		for _, value := range []string{
			"99ms", "100ms", "0.1s", "2m", "1m60001ms", "24h", "24h1ms", "1439m60s", "1440.1m",
			"0s", "", "-1s", "1x", "1 m", "1s.", "s", "yes",
		} {
			values := map[string]any{"terminationGracePeriodSeconds": 100_000}
			if err := strvals.ParseInto(s.Helm+"="+value, values); err != nil {
				t.Fatal(err)
			}
			_, err := deploy.Render(values, deploy.Options{})
			if s.Kind.Allows(value) {
				if err != nil {
					t.Errorf("%s=%s: %v", s.Helm, value, err)
				}
			} else if want := s.Helm + " " + value + ": must be " +
				strings.Split(s.Kind.Want, ",")[0]; err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s=%s: error %v, want %q in it", s.Helm, value, err, want)
			}
		}
	}
	if durations < 5 {
		t.Errorf("%d settings with a duration, want at least 5", durations)
	}
}

// An error about a null value contains the key, not only the line of a template.
func TestErrorsContainTheKey(t *testing.T) {
	data, err := os.ReadFile(deploy.ChartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	var walk func(schema map[string]any, path []string)
	walk = func(schema map[string]any, path []string) {
		properties, _ := schema["properties"].(map[string]any)
		for key, property := range properties {
			path := append(slices.Clone(path), key)
			var values any
			for _, name := range slices.Backward(path) {
				values = map[string]any{name: values}
			}
			tested++
			_, err := deploy.Render(values.(map[string]any), deploy.Options{})
			byTemplate, bySchema := "values."+strings.Join(path, "."), "/"+strings.Join(path, "/")
			if err != nil && !strings.Contains(err.Error(), byTemplate) &&
				!strings.Contains(err.Error(), bySchema) {
				t.Errorf("%s: null: error %v, want the key in the error", strings.Join(path, "."), err)
			}
			if inner, ok := property.(map[string]any); ok {
				walk(inner, path)
			}
		}
	}
	walk(parse(t, string(data)), nil)
	if tested < 100 {
		t.Errorf("%d keys, want at least 100", tested)
	}
}

// These values are similar to rejected values.
func TestAcceptedValues(t *testing.T) {
	for _, values := range []string{
		"cniConfFileName: 10-mesh.conflist",
		"{platform: openshift, cniConfFileName: sluice-cni.conf}", "uninstallTimeout: 25000ms", "profile: ambient",
		"{profile: ambient, terminationGracePeriodSeconds: 31, uninstallTimeout: 16s}",
		"{uninstallTimeout: 1m, terminationGracePeriodSeconds: 65}",
		"{apiBudget: null, apiTryTimeout: null, resyncInterval: null, uninstallTimeout: null, " +
			"audit: {interval: null}}",
		"{mountNetns: false, searchProc: false, audit: {enabled: false}, repair: {repairPods: false}}",
		"{monitoringPort: 0, dashboard: {enabled: true}}", "resources: {limits: {memory: 192Mi}}",
		"resources: {limits: {memory: 1Gi}}", "resources: {limits: {memory: 1.5e9}}",
		"resources: {limits: {memory: null}}", "resources: null", "cniBinDir: /home/kubernetes/bin",
		"updateStrategy: {rollingUpdate: {maxSurge: 0}}",
		"updateStrategy: {rollingUpdate: {maxSurge: 0%}}", "updateStrategy: null",
		"resources: {requests: {cpu: 1}, limits: {cpu: 1000m, ephemeral-storage: 1e3}}",
		`compatibilityVersion: "1.25"`, `{profile: ambient, compatibilityVersion: "1.29"}`,
		`{profile: ambient, compatibilityVersion: "1.24", cni: {ambient: {reconcileIptablesOnStartup: true,
			shareHostNetworkNamespace: false, dnsCapture: false}}}`,
		"{profile: demo, rollingMaxUnavailable: null, ambient: {redirectMode: null}}",
	} {
		if _, err := deploy.Render(parse(t, values), deploy.Options{}); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	_, err := deploy.Render(parse(t,
		"{profile: embedded, variant: debug, env: {NATIVE_NFTABLES: true}}"), deploy.Options{})
	for _, want := range []string{`profile "embedded":`, `variant "debug":`, "env.NATIVE_NFTABLES:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// One values file is often used for all charts of Istio.
func TestKeysOfOtherChartsAreAccepted(t *testing.T) {
	_, _ = render(t, `{pilot: {cni: {enabled: true}}, meshConfig: {accessLogFile: /dev/stdout},
		ztunnel: {}, gateways: {}, profile: demo, compatibilityVersion: "1.28", revision: canary,
		ownerName: istio, global: {istioNamespace: istio-system, proxy: {privileged: false}}}`,
		deploy.Options{})
}

func TestIstioCNIDefaultsAreAccepted(t *testing.T) {
	istio, _ := render(t, istioDefaults, deploy.Options{})
	sluice, _ := render(t, "resources: {requests: {cpu: 100m, memory: 100Mi}}", deploy.Options{})
	if diff := cmp.Diff(sluice, istio); diff != "" {
		t.Errorf("objects for Sluice's and istio-cni's defaults (-sluice +istio)\n%s", diff)
	}
}

// istioDefaults contains the defaults of istio-cni's chart, except for the image.
const istioDefaults = `
hub: ""
tag: ""
variant: ""
pullPolicy: ""
logging: {level: ""}
cniBinDir: /opt/cni/bin
cniConfDir: /etc/cni/net.d
cniConfFileName: ""
cniNetnsDir: /var/run/netns
istioOwnedCNIConfigFileName: ""
istioOwnedCNIConfig: false
excludeNamespaces: [kube-system]
affinity: {}
daemonSetLabels: {}
podAnnotations: {}
podLabels: {}
chained: true
provider: default
ambient:
  enabled: false
  enablementSelectors: [{podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]
  configDir: ""
  dnsCapture: true
  ipv6: true
  reconcileIptablesOnStartup: true
  shareHostNetworkNamespace: false
  enableAmbientDetectionRetry: false
repair:
  enabled: true
  hub: ""
  tag: ""
  labelPods: false
  deletePods: false
  repairPods: true
  initContainerName: istio-validation
  brokenPodLabelKey: cni.istio.io/uninitialized
  brokenPodLabelValue: "true"
seccompProfile: {}
seLinuxOptions: {}
useAppArmorAnnotation: true
resources: {requests: {cpu: 100m, memory: 100Mi}}
resourceQuotas: {enabled: false, pods: 5000}
tolerations:
- {effect: NoSchedule, operator: Exists}
- {key: CriticalAddonsOnly, operator: Exists}
- {effect: NoExecute, operator: Exists}
updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
terminationGracePeriodSeconds: 30
revision: ""
ownerName: ""
global:
  variant: ""
  imagePullPolicy: ""
  logging: {level: info}
  logAsJson: false
  networkPolicy: {enabled: false}
  imagePullSecrets: []
  defaultResources: {requests: {cpu: 100m, memory: 100Mi}}
  nativeNftables: false
  resourceScope: all
env: {}
`
