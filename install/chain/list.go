package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// A List is a valid network configuration list: its text, and the positions of the plugins in it.
// Use [Parse].
type List struct {
	// Name is the name of the network.
	Name string
	// CNIVersion is the version of the specification for calls of the plugins; it may be empty.
	CNIVersion string
	// OldCNIVersion is the version that runtimes with libcni 1.2 and earlier use instead, because
	// they do not read the list's cniVersions; it may be empty.
	OldCNIVersion string
	// Plugins contains the plugins in the order of the list; never empty.
	Plugins []Plugin
	// OnlyInlined is set if the runtime loads no further plugins from the directory with the
	// network's name.
	OnlyInlined bool

	data []byte
}

// A Plugin is an element of a list.
type Plugin struct {
	// Type is the name of the executable.
	Type string
	// Raw is the text of the element. It must not be modified.
	Raw json.RawMessage

	start, end int // position of Raw in the list
}

// ErrNoPlugins is the error for a list without plugins. Such a list may be valid from libcni 1.3
// on, where a directory with the network's name may contain the plugins.
var ErrNoPlugins = errors.New("no plugins in the list")

// Parse parses a list like libcni. The data must not be modified afterwards.
func Parse(data []byte) (*List, error) {
	conf, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	if len(conf.Plugins) == 0 {
		return nil, ErrNoPlugins
	}
	elements, err := elements(data)
	if err != nil {
		return nil, err
	}
	if len(elements) != len(conf.Plugins) {
		return nil, fmt.Errorf("libcni finds %d plugins, but the text contains %d elements",
			len(conf.Plugins), len(elements))
	}
	for i, p := range conf.Plugins {
		elements[i].Type = p.Network.Type
	}
	return &List{
		Name:        conf.Name,
		CNIVersion:  conf.CNIVersion,
		Plugins:     elements,
		OnlyInlined: conf.LoadOnlyInlinedPlugins,
		data:        data,

		OldCNIVersion: oldVersion(data),
	}, nil
}

// oldVersion returns the cniVersion of a list that libcni accepts.
func oldVersion(data []byte) (version string) {
	var fields map[string]json.RawMessage // libcni matches these keys case-sensitively
	if json.Unmarshal(data, &fields) == nil {
		_ = json.Unmarshal(fields["cniVersion"], &version) // it may be missing
	}
	return version
}

// maxNameLength is the maximum length of a network's name. The name of libcni's file with the
// result of an ADD consists of the name of the network, the ID of the sandbox (64 characters in
// containerd and CRI-O) and the name of the interface (eth0), with hyphens, and has at most 255
// bytes.
const maxNameLength = 255 - len("-") - 64 - len("-eth0")

// CheckName returns an error if libcni refuses every ADD because of the network's name. CRI-O uses
// the name of the file if the name is empty.
func (l *List) CheckName() error {
	if utils.ValidateNetworkName(l.Name) == nil && len(l.Name) <= maxNameLength {
		return nil
	}
	return fmt.Errorf("%.100q is not 1 to %d ASCII letters, digits, '_', '.' and '-', of which the "+
		"first is a letter or digit", l.Name, maxNameLength)
}

// Types returns the types of the plugins in order.
func (l *List) Types() []string {
	types := make([]string, len(l.Plugins))
	for i, p := range l.Plugins {
		types[i] = p.Type
	}
	return types
}

// Has reports whether the list contains a plugin of the type.
func (l *List) Has(plugin string) bool { return slices.Contains(l.Types(), plugin) }

// Elements returns the plugins of a type.
func (l *List) Elements(plugin string) []Plugin {
	var found []Plugin
	for _, p := range l.Plugins {
		if p.Type == plugin {
			found = append(found, p)
		}
	}
	return found
}

// SupportsChains reports whether the list's CNI version supports passing results to the next
// plugin, as version 0.3.0 and later do.
func (l *List) SupportsChains() bool { return supportsChains(l.CNIVersion) }

func supportsChains(cniVersion string) bool {
	if cniVersion == "" {
		return false
	}
	ok, err := version.GreaterThanOrEqualTo(cniVersion, "0.3.0")
	return err == nil && ok
}

// elements returns the elements of the plugins in a list that libcni accepts. If a key is repeated,
// the last value is used, as in libcni.
func elements(data []byte) ([]Plugin, error) {
	var found []Plugin
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil { // the brace
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, end, err := nextValue(d)
		if err != nil {
			return nil, err
		}
		if key == "plugins" {
			if found, err = elementsOfArray(data[:end], end-len(value)); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// elementsOfArray returns the elements of the array at data[start:]. It returns none if the value
// there is not an array.
func elementsOfArray(data []byte, start int) ([]Plugin, error) {
	d := json.NewDecoder(bytes.NewReader(data[start:]))
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return nil, err
	}
	var found []Plugin
	for d.More() {
		raw, end, err := nextValue(d)
		if err != nil {
			return nil, err
		}
		end += start
		found = append(found, Plugin{
			Raw: data[end-len(raw) : end : end], start: end - len(raw), end: end,
		})
	}
	return found, nil
}

// nextValue returns the next value, and the position after it.
func nextValue(d *json.Decoder) (json.RawMessage, int, error) {
	var raw json.RawMessage
	err := d.Decode(&raw)
	return raw, int(d.InputOffset()), err
}
