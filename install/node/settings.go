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

// Settings say what the node shall be like. The names are those of Istio's chart where there is
// such a setting.
type Settings struct {
	// CNIBinDir and CNIConfDir are the directories of the executables and of the network
	// configurations, as this process sees them. They must exist.
	CNIBinDir, CNIConfDir string
	// NodeRoot returns a path of this process that leads to the root directory which the runtime
	// has, as /proc/PID/root of a process that it has started; the error says why there is none.
	// There the runtime finds the directories at NodeCNIBinDir and NodeCNIConfDir, with which
	// CNIBinDir and CNIConfDir are compared at each pass. If nil, whether they are the same is
	// unknown.
	NodeRoot                      func() (string, error)
	NodeCNIBinDir, NodeCNIConfDir string
	// CNIConfFileName names the configuration to insert into; if empty, the first valid one is
	// taken, as runtimes do. Where another one comes before the named one, pods have no
	// redirection, and the node is not as it should be, unless that is one of Multus, which
	// delegates to the named one, or may do so: where it names neither a file of the directory nor
	// the copy of one (no clusterNetwork and no delegates, a NetworkAttachmentDefinition, a
	// directory), that is told, but the node counts as it should be. For a stand-alone
	// configuration it is the name of the file to write (YYY-sluice-cni.conf), which must not end
	// in .conflist.
	CNIConfFileName string
	// Chained puts the plugin at the end of the node's chain. Otherwise a stand-alone configuration
	// is written, which Multus runs for pods that ask for its network.
	Chained bool
	// IstioOwnedCNIConfig leaves the primary configuration alone and keeps a copy of it with the
	// plugin, under a name that comes before it: IstioOwnedCNIConfigFileName
	// (02-istio-cni.conflist).
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
	// Noop is the path of an executable without effect. It replaces removed executables while
	// cached results of the runtime name them. If it is empty, uninstallation leaves the plugin
	// itself in that case.
	Noop string
	// TakeOver are types of plugins that the plugin replaces, and that are restored by
	// uninstallation (istio-cni). Elements with ambient_enabled are not replaced.
	TakeOver []string

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
	// Gate is called before the plugin is inserted where it is not yet: an error prevents that, so
	// that no pod uses a plugin that cannot work. It may be nil. It is called by the goroutine of
	// the pass.
	Gate func() error
	// Resync is the maximum time between passes (10 s).
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
	if s.TakeOver == nil {
		s.TakeOver = []string{"istio-cni"}
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
		"cniConfFileName: %q ends in .conflist, but without chained a plain configuration is written there: want .conf", s.CNIConfFileName)
	err := json.Unmarshal(s.Element, &head)
	need(err == nil && head.Type == s.Type && s.Type != "",
		"plugin configuration: not a JSON object of type %q", s.Type)
	need(s.Binaries[s.Type] != "", "binaries: none for %q", s.Type)
	need(!slices.Contains(s.TakeOver, s.Type), "take over: %q is our own type", s.Type)
	return errors.Join(errs...)
}

// OwnPod reports whether a pod belongs to the agent or the uninstall job: it is in their namespace,
// and its name is the controller's name with a dash and a suffix.
func (s Settings) OwnPod(namespace, pod string) bool {
	word, found := strings.CutPrefix(pod, s.AgentDaemonSet+"-")
	return s.AgentNamespace != "" && namespace == s.AgentNamespace && s.AgentDaemonSet != "" &&
		found && word != "" && !strings.Contains(word, "-")
}

// owned reports whether a copy of the primary configuration is maintained.
func (s Settings) owned() bool { return s.Chained && s.IstioOwnedCNIConfig }

func (s Settings) standaloneMode() fs.FileMode {
	if s.CNIConfGroupRead {
		return 0o640
	}
	return 0o600
}
