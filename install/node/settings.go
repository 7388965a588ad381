package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Settings describe the desired state of the node. Settings that Istio's chart has too have the
// same names.
type Settings struct {
	// CNIBinDir and CNIConfDir are the directories of the executables and of the network
	// configurations, as this process sees them. They must exist.
	CNIBinDir, CNIConfDir string
	// RuntimeRoot returns the path of the root directory in which the runtime finds the directories
	// NodeCNIBinDir and NodeCNIConfDir: /proc/PID/root of a process that the runtime started. Each
	// reconciliation compares CNIBinDir and CNIConfDir with them. An error says why the path is
	// unknown. If RuntimeRoot is nil, the reconciliation cannot tell whether the directories are
	// the same.
	RuntimeRoot                   func() (string, error)
	NodeCNIBinDir, NodeCNIConfDir string
	// CNIConfFileName is the file to insert the plugin into. If it is empty, the plugin is inserted
	// into the first valid file, as runtimes choose it. If another file sorts before the named one,
	// pods have no redirection, and the node has a blocking problem. An exception is a
	// configuration of Multus that delegates to the named file. If the agent cannot determine its
	// target (no clusterNetwork and no delegates, a NetworkAttachmentDefinition, a directory), it
	// reports a problem that is not blocking. For a stand-alone configuration it is the name of the
	// file to write (YYY-sluice-cni.conf), which must not end in .conflist.
	CNIConfFileName string
	// Chained inserts the plugin at the end of the node's chain. Otherwise a stand-alone
	// configuration is written, which Multus runs for pods that request its network.
	Chained bool
	// IstioOwnedCNIConfig leaves the primary configuration unchanged and maintains a copy of it
	// with the plugin, named IstioOwnedCNIConfigFileName (02-istio-cni.conflist), which must sort
	// before it.
	IstioOwnedCNIConfig         bool
	IstioOwnedCNIConfigFileName string
	// CNIConfGroupRead makes a stand-alone configuration readable by its group: mode 0640 instead
	// of 0600.
	CNIConfGroupRead bool

	// Type is the plugin's type, which is also the name of its executable.
	Type string
	// Element is the plugin's configuration: a JSON object of that type.
	Element json.RawMessage
	// NetworkName and CNIVersion complete a stand-alone configuration (istio-cni, 0.3.1).
	NetworkName, CNIVersion string
	// Binaries are the executables to install into CNIBinDir, by name, with the paths to copy them
	// from. One must have the name Type.
	Binaries map[string]string
	// Noop is the path of the no-op executable. It replaces removed executables while cached
	// results of the runtime name them. If it is empty, uninstallation leaves the plugin installed
	// in that case.
	Noop string
	// TakeOver are types of plugins that the plugin replaces, and that are restored by
	// uninstallation (istio-cni). Elements with ambient_enabled are not replaced.
	ReplacedTypes []string

	// StateDir contains the journal. It should persist across reboots: without it, uninstallation
	// only removes the plugin's element.
	StateDir string
	// ResultDirs are the directories where runtimes cache results of ADD (/var/lib/cni/results and
	// /var/lib/cni/cache/results).
	ResultDirs []string
	// AgentNamespace is the namespace of the agent's pods, AgentDaemonSet the name of their
	// DaemonSet and of the uninstall job. If either is empty, no pod is identified as the agent's.
	// See [Settings.OwnPod].
	AgentNamespace, AgentDaemonSet string
	// ReadyToInsert is called before the plugin is inserted for the first time. An error prevents
	// the insertion, so that no pod uses a plugin that cannot work. It may be nil. It is called by
	// the goroutine of the reconciliation.
	ReadyToInsert func() error
	// Resync is the maximum time between reconciliations (10 s).
	Resync time.Duration
}

// Defaults of settings.
const (
	DefaultOwnedFileName      = "02-istio-cni.conflist"
	DefaultStandaloneFileName = "YYY-sluice-cni.conf"
	defaultNetworkName        = "istio-cni"
	defaultCNIVersion         = "0.3.1"
	defaultResync             = 10 * time.Second
)

// WithDefaults returns the settings with defaults for empty ones.
func (s Settings) WithDefaults() Settings {
	fill := func(value *string, fallback string) {
		if *value == "" {
			*value = fallback
		}
	}
	fill(&s.IstioOwnedCNIConfigFileName, DefaultOwnedFileName)
	if !s.Chained {
		fill(&s.CNIConfFileName, DefaultStandaloneFileName)
	}
	fill(&s.NetworkName, defaultNetworkName)
	fill(&s.CNIVersion, defaultCNIVersion)
	if s.ReplacedTypes == nil {
		s.ReplacedTypes = []string{"istio-cni"}
	}
	if s.ResultDirs == nil {
		s.ResultDirs = []string{"/var/lib/cni/results", "/var/lib/cni/cache/results"}
	}
	if s.Resync == 0 {
		s.Resync = defaultResync
	}
	return s
}

// Validate returns an error with all invalid settings.
func (s Settings) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, dir := range []struct{ name, path string }{
		{"cniBinDir", s.CNIBinDir}, {"cniConfDir", s.CNIConfDir}, {"state directory", s.StateDir},
	} {
		need(filepath.IsAbs(dir.path), "%s: %q is not an absolute path", dir.name, dir.path)
	}
	for _, file := range []struct{ name, value, ext string }{
		{"istioOwnedCNIConfigFileName", s.IstioOwnedCNIConfigFileName, ".conflist"},
		{"cniConfFileName", s.CNIConfFileName, ""},
	} {
		need(file.value == filepath.Base(file.value) || file.value == "",
			"%s: %q is not the name of a file", file.name, file.value)
		need(file.ext == "" || filepath.Ext(file.value) == file.ext, "%s: %q does not end in %s",
			file.name, file.value, file.ext)
	}
	var head struct{ Type string }
	need(s.Chained || filepath.Ext(s.CNIConfFileName) != ".conflist",
		"cniConfFileName: %q ends in .conflist, but without chained it is a single-plugin configuration: use .conf", s.CNIConfFileName)
	err := json.Unmarshal(s.Element, &head)
	need(err == nil && head.Type == s.Type && s.Type != "",
		"plugin configuration: not a JSON object of type %q", s.Type)
	need(s.Binaries[s.Type] != "", "binaries: no path for %q", s.Type)
	need(!slices.Contains(s.ReplacedTypes, s.Type), "replaced types: %q is the plugin's own type", s.Type)
	return errors.Join(errs...)
}

// OwnPod reports whether a pod belongs to the agent or the uninstall job: it is in their namespace,
// and its name is AgentDaemonSet, a dash, and a suffix without dashes.
func (s Settings) OwnPod(namespace, pod string) bool {
	suffix, found := strings.CutPrefix(pod, s.AgentDaemonSet+"-")
	return s.AgentNamespace != "" && namespace == s.AgentNamespace && s.AgentDaemonSet != "" &&
		found && suffix != "" && !strings.Contains(suffix, "-")
}

// owned reports whether a copy of the primary configuration is maintained.
func (s Settings) owned() bool { return s.Chained && s.IstioOwnedCNIConfig }

func (s Settings) standaloneMode() fs.FileMode {
	if s.CNIConfGroupRead {
		return 0o640
	}
	return 0o600
}
