package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/install/settings"
)

func readme(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// In the other order, or with one release for both, mesh pods have no redirection for some time.
func TestDocumentedMigrationInstallsSluiceFirst(t *testing.T) {
	for _, path := range []string{"../../README.md", "../../install/chart/README.md"} {
		text := readme(t, path)
		sluiceIndex := strings.Index(text,
			"helm install sluice oci://registry.example/mesh/charts/sluice --version 0.2.0 -n istio-system --wait \\\n"+
				"  -f your-istio-cni-values.yaml")
		istioIndex := strings.Index(text, "helm uninstall istio-cni -n istio-system")
		if sluiceIndex < 0 || istioIndex < sluiceIndex || strings.Contains(text, "helm upgrade istio-cni") {
			t.Errorf("%s: installation of Sluice at %d, uninstallation of istio-cni at %d, want this order "+
				"and no upgrade of istio-cni", path, sluiceIndex, istioIndex)
		}
	}
}

// kubectl debug mounts the node's root at /host. The command sets some variables; the others have
// their defaults. All must name the agent's directories on the node.
func TestManualUninstallationUsesTheNodesDirectories(t *testing.T) {
	text := readme(t, "../../install/chart/README.md")
	_, command, found := strings.Cut(text, "\necho '")
	command, _, _ = strings.Cut(command, "\n```")
	container, command, _ := strings.Cut(command, "' | kubectl debug node/NODE ")
	if !found || !strings.HasSuffix(command, "-- sluice-node uninstall") {
		t.Fatalf("no command sluice-node uninstall in the README: %s", command)
	}
	var custom core.Container
	if err := yaml.UnmarshalStrict([]byte(container), &custom); err != nil {
		t.Fatal(err)
	}
	// The image's default user cannot change the node's directories.
	if user := custom.SecurityContext.RunAsUser; user == nil || *user != 0 {
		t.Errorf("container %s, want runAsUser 0", container)
	}
	given := map[string]string{}
	for _, env := range regexp.MustCompile(`--env=(\w+)=(\S+)`).FindAllStringSubmatch(command, -1) {
		given[env[1]] = env[2]
	}
	for env, directory := range map[string]string{
		// On nodes, /var/run is an absolute symbolic link.
		"CNI_AGENT_RUN_DIR":      strings.TrimPrefix(settings.RunDir, "/var"),
		"SLUICE_STATE_DIR":       settings.StateDir,
		"SLUICE_MOUNTED_BIN_DIR": "/opt/cni/bin", "MOUNTED_CNI_NET_DIR": "/etc/cni/net.d",
		"SLUICE_MOUNTED_CACHE_DIR": "/var/lib/cni",
	} {
		got, explicit := given[env]
		delete(given, env)
		if s, known := settings.Find(env); !explicit && known {
			got = s.Default
		}
		if got != "/host"+directory {
			t.Errorf("%s is %s, want /host%s", env, got, directory)
		}
	}
	if len(given) > 0 {
		t.Errorf("unneeded variables of the command: %v, want none", given)
	}
}
