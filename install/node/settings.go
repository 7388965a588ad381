package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Settings describes the desired state of the node. Fields that correspond to values of Istio's
// chart have the same names. A value in parentheses is the default of its field; see
// [Settings.WithDefaults].
type Settings struct {
	// CNIBinDir and CNIConfDir are the directories of the executables and of the network
	// configurations, as this process sees them. They must exist.
	CNIBinDir, CNIConfDir string
	// RuntimeRoot returns the path of the runtime's root directory: /proc/PID/root of a process
	// in the runtime's mount namespace. Each reconciliation compares CNIBinDir and CNIConfDir with
	// NodeCNIBinDir and NodeCNIConfDir below this root. If RuntimeRoot is nil or returns an error,
	// it is unknown whether the runtime uses the same directories.
	RuntimeRoot func() (string, error)
	// NodeCNIBinDir and NodeCNIConfDir are the paths of CNIBinDir and CNIConfDir as the runtime
	// sees them.
	NodeCNIBinDir, NodeCNIConfDir string
	// RunDir is the directory that agent and plugin share, as this process sees it, and NodeRunDir
	// its path as the runtime sees it. If these are different directories, the plugin finds neither
	// its credentials nor the agent, and no pod of the mesh starts. If RunDir is empty, they are
	// not compared.
	RunDir, NodeRunDir string
	// CNIConfFileName is the name of the file to insert the plugin into. If it is empty, the plugin
	// is inserted into the first valid file, which runtimes use. If another file sorts before the
	// named file, pods have no redirection, and the node has a blocking problem. There is no
	// problem if the other file is a configuration of Multus that delegates to the named file. The
	// problem is not blocking if the other file contains the plugin, or if the agent cannot
	// determine to which configuration Multus delegates: Multus has neither clusterNetwork nor
	// delegates, or clusterNetwork names a NetworkAttachmentDefinition, a directory, or a file or
	// network of another directory.
	//
	// Without Chained, CNIConfFileName is the name of the stand-alone configuration
	// (YYY-sluice-cni.conf), and must not end in .conflist.
	CNIConfFileName string
	// Chained inserts the plugin at the end of the node's chain. Otherwise a stand-alone
	// configuration is written, which Multus runs for pods that request its network.
	Chained bool
	// IstioOwnedCNIConfig leaves the primary configuration unchanged and maintains a copy of it
	// with the plugin. It has no effect without Chained.
	IstioOwnedCNIConfig bool
	// IstioOwnedCNIConfigFileName is the name of this copy (02-istio-cni.conflist). If the primary
	// configuration sorts before the copy, the plugin is inserted into the primary configuration
	// too, and the status has a problem that is not blocking.
	IstioOwnedCNIConfigFileName string
	// CNIConfGroupRead makes a stand-alone configuration readable by its group: mode 0640 instead
	// of 0600.
	CNIConfGroupRead bool

	// Type is the plugin's type, which is also the name of its executable.
	Type string
	// Element is the plugin's configuration: a JSON object whose field type is Type.
	Element json.RawMessage
	// NetworkName and CNIVersion complete a stand-alone configuration (istio-cni, 0.3.1).
	NetworkName, CNIVersion string
	// Binaries maps the names of the executables to install into CNIBinDir to the paths of their
	// sources. One must have the name Type.
	Binaries map[string]string
	// Noop is the path of the no-op executable. It replaces a missing executable of ReplacedTypes
	// while cached results of the runtime name this executable. Uninstallation also writes it over
	// executables that cached results or configurations still name. If Noop is empty,
	// uninstallation leaves these executables in place.
	Noop string
	// ReplacedTypes contains the types of plugins that the plugin replaces (istio-cni).
	// Uninstallation restores them. Elements with ambient_enabled are not replaced.
	ReplacedTypes []string

	// StateDir contains the journal. It should persist across reboots: without the journal,
	// uninstallation removes the plugin's element, but does not restore the original files.
	StateDir string
	// ResultDirs contains the directories in which runtimes cache results of ADD
	// (/var/lib/cni/results and /var/lib/cni/cache/results).
	ResultDirs []string
	// AgentNamespace is the namespace of the agent's pods, and AgentDaemonSet is the name of their
	// DaemonSet and of the uninstall job. If either is empty, no pod is identified as the agent's.
	// See [Settings.IsAgentPod].
	AgentNamespace, AgentDaemonSet string
	// ReadyToInsert, unless nil, is called before the plugin is inserted for the first time, which
	// means that no configuration contains the plugin and the journal has no entry of a
	// configuration. An error prevents the insertion, so that no pod uses a plugin that cannot
	// work. The goroutine of the reconciliation calls it.
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

// WithDefaults returns the settings with empty fields set to their defaults.
func (s Settings) WithDefaults() Settings {
	s.IstioOwnedCNIConfigFileName = cmp.Or(s.IstioOwnedCNIConfigFileName, DefaultOwnedFileName)
	if !s.Chained {
		s.CNIConfFileName = cmp.Or(s.CNIConfFileName, DefaultStandaloneFileName)
	}
	s.NetworkName = cmp.Or(s.NetworkName, defaultNetworkName)
	s.CNIVersion = cmp.Or(s.CNIVersion, defaultCNIVersion)
	s.Resync = cmp.Or(s.Resync, defaultResync)
	if s.ReplacedTypes == nil {
		s.ReplacedTypes = []string{"istio-cni"}
	}
	if s.ResultDirs == nil {
		s.ResultDirs = []string{"/var/lib/cni/results", "/var/lib/cni/cache/results"}
	}
	return s
}

// Validate returns an error with all faults that it finds in the settings, or nil. It expects the
// result of [Settings.WithDefaults].
func (s Settings) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, dir := range []struct{ name, path string }{
		{"cniBinDir", s.CNIBinDir}, {"cniConfDir", s.CNIConfDir}, {"state directory", s.StateDir},
	} {
		require(filepath.IsAbs(dir.path), "%s: %q is not an absolute path", dir.name, dir.path)
	}
	for _, file := range []struct{ name, value, ext string }{
		{"istioOwnedCNIConfigFileName", s.IstioOwnedCNIConfigFileName, ".conflist"},
		{"cniConfFileName", s.CNIConfFileName, ""},
	} {
		require(file.value == filepath.Base(file.value) || file.value == "",
			"%s: %q is not the name of a file", file.name, file.value)
		require(file.ext == "" || filepath.Ext(file.value) == file.ext, "%s: %q does not end in %s",
			file.name, file.value, file.ext)
	}
	require(s.Chained || filepath.Ext(s.CNIConfFileName) != ".conflist",
		"cniConfFileName: %q ends in .conflist, "+
			"but without chained it is a single-plugin configuration: use .conf", s.CNIConfFileName)
	var element struct{ Type string }
	err := json.Unmarshal(s.Element, &element)
	require(err == nil && element.Type == s.Type && s.Type != "",
		"plugin configuration: not a JSON object of type %q", s.Type)
	require(s.Binaries[s.Type] != "", "binaries: no path for %q", s.Type)
	require(!slices.Contains(s.ReplacedTypes, s.Type),
		"replaced types: %q is the plugin's own type", s.Type)
	return errors.Join(errs...)
}

// IsAgentPod reports whether a pod belongs to the agent's DaemonSet or to the uninstall job: its
// namespace must be AgentNamespace, and its name must consist of AgentDaemonSet, a dash, and a
// suffix without dashes.
func (s Settings) IsAgentPod(namespace, pod string) bool {
	suffix, hasPrefix := strings.CutPrefix(pod, s.AgentDaemonSet+"-")
	return s.AgentNamespace != "" && namespace == s.AgentNamespace && s.AgentDaemonSet != "" &&
		hasPrefix && suffix != "" && !strings.Contains(suffix, "-")
}

// maintainsCopy reports whether a copy of the primary configuration is maintained.
func (s Settings) maintainsCopy() bool { return s.Chained && s.IstioOwnedCNIConfig }

func (s Settings) standaloneMode() fs.FileMode {
	if s.CNIConfGroupRead {
		return 0o640
	}
	return 0o600
}
