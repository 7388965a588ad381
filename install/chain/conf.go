package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// chainedVersion is the CNI version of a list that is created for a single-plugin configuration
// whose version is missing or does not support chains. Istio's installer uses the same version.
const chainedVersion = "0.3.1"

// FromSinglePlugin returns a list that is equivalent to a single-plugin configuration (.conf). The
// configuration becomes the list's only plugin, unchanged.
func FromSinglePlugin(data []byte) (*List, error) {
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	cniVersion := conf.Network.CNIVersion
	if !supportsChains(cniVersion) {
		cniVersion = chainedVersion
	}
	const format = `{
  "cniVersion": %s,
  "name": %s,
  "plugins": [
%s
  ]
}
`
	return Parse(fmt.Appendf(nil, format, quote(cniVersion), quote(conf.Network.Name),
		bytes.TrimSpace(data)))
}

// quote returns a string in JSON.
func quote(text string) string {
	quoted, _ := json.Marshal(text) // the encoding of a string cannot fail
	return string(quoted)
}

// maxDashes limits the names that ListName tries.
const maxDashes = 16

// ListName returns the file name for the list that replaces the file of a single-plugin
// configuration. files contains the names of the directory's configurations. The returned name is
// not among them. If possible, none of them sorts between the two names: runtimes would use such a
// file as soon as the single-plugin file is removed.
func ListName(singlePlugin string, files []string) string {
	name := strings.TrimSuffix(singlePlugin, filepath.Ext(singlePlugin)) + ".conflist"
	first := name
	for dashes := "-"; isFileBetween(files, singlePlugin, name); dashes += "-" {
		// This name sorts after the single-plugin file and before the names tried so far.
		name = singlePlugin + dashes + "sluice.conflist"
		if len(dashes) > maxDashes { // a file has a character before the dash, such as +
			name = first
			break
		}
	}
	for dashes := "-"; slices.Contains(files, name); dashes += "-" {
		name = singlePlugin + dashes + "sluice.conflist"
	}
	return name
}

// isFileBetween reports whether one of the files has the given name, or sorts between the name and
// the file of the single-plugin configuration.
func isFileBetween(files []string, singlePlugin, name string) bool {
	low, high := min(singlePlugin, name), max(singlePlugin, name)
	return slices.ContainsFunc(files, func(file string) bool {
		return file != singlePlugin && low <= file && file <= high
	})
}

// Standalone returns a single-plugin configuration of the plugin, which Multus runs for an
// additional network of a pod. The configuration is the element, with a version and the network's
// name added unless the element contains them.
func Standalone(element json.RawMessage, cniVersion, network string) ([]byte, error) {
	var fields struct{ CNIVersion, Name, Type *string }
	if err := json.Unmarshal(element, &fields); err != nil || fields.Type == nil {
		return nil, fmt.Errorf(
			"the stand-alone configuration is not a JSON object with a type: %.80s", element)
	}
	if network == "" && fields.Name == nil {
		return nil, errors.New("the stand-alone configuration has no name")
	}
	inner := bytes.TrimSpace(bytes.TrimSpace(element)[1:])
	members := []byte("{")
	if fields.CNIVersion == nil {
		members = fmt.Appendf(members, `"cniVersion": %s, `, quote(cniVersion))
	}
	if fields.Name == nil {
		members = fmt.Appendf(members, `"name": %s, `, quote(network))
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(members, inner...), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// TypeOf returns the type of a single-plugin configuration, or an empty string if it is invalid.
func TypeOf(data []byte) string {
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return ""
	}
	return conf.Network.Type
}
