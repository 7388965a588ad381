package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

// plugins stands for all plugins of a chain. Its value is the path of a network namespace. The
// result of each plugin contains an interface in this namespace.
type plugins string

var _ invoke.Exec = plugins("")

// ExecPlugin implements [invoke.Exec].
func (p plugins) ExecPlugin(_ context.Context, _ string, _ []byte, _ []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"interfaces": []map[string]any{{"name": "veth1"}, {"name": "eth0", "sandbox": string(p)}},
	})
}

// FindInPath implements [invoke.Exec].
func (p plugins) FindInPath(plugin string, paths []string) (string, error) {
	if len(paths) == 0 {
		return "", fmt.Errorf("no path for %s", plugin)
	}
	return filepath.Join(paths[0], plugin), nil
}

// Decode implements [invoke.Exec].
func (p plugins) Decode(text []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(text)
}
