package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Defect is a defect of the plugin's element in a list. Its text continues a sentence that begins
// with the plugin.
type Defect string

// The defects, worst first. With None, the plugin is in the list once, as the last plugin, and with
// the desired configuration.
const (
	None      Defect = ""
	Absent    Defect = "is not there"              // pods are not redirected
	Different Defect = "has another configuration" // at least one of its elements
	Repeated  Defect = "is there more than once"   // it would run more than once for each pod
	NotLast   Defect = "is not last"               // other plugins come after it
)

// Inspect returns the defect of the plugin in the list, compared with the desired element. JSON
// values are compared, not their text: formatting is ignored.
func (l *List) Inspect(plugin string, element json.RawMessage) Defect {
	elements := l.Elements(plugin)
	switch {
	case len(elements) == 0:
		return Absent
	case slices.ContainsFunc(elements, func(p Plugin) bool { return !Equal(p.Raw, element) }):
		return Different
	case len(elements) > 1:
		return Repeated
	case l.Plugins[len(l.Plugins)-1].Type != plugin:
		return NotLast
	}
	return None
}

// Equal reports whether two JSON texts have the same value. Invalid texts are not equal to
// anything; text after the first value is ignored.
func Equal(a, b json.RawMessage) bool {
	valueA, err := decodeValue(a)
	if err != nil {
		return false
	}
	valueB, err := decodeValue(b)
	return err == nil && reflect.DeepEqual(valueA, valueB)
}

func decodeValue(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // some readers distinguish 1 and 1.0
	var v any
	err := d.Decode(&v)
	return v, err
}

// Insert returns the list's text with the element as the last plugin, formatted like the plugin
// before it. Existing elements with the type of the element or a type in inPlaceOf are removed. The
// element must be a JSON object with a type.
func (l *List) Insert(element json.RawMessage, inPlaceOf ...string) ([]byte, error) {
	var fields struct{ Type string }
	if err := json.Unmarshal(element, &fields); err != nil || fields.Type == "" {
		return nil, fmt.Errorf("the element for the chain is not a JSON object with a type: %.80s",
			element)
	}
	others := l
	types := append(slices.Clone(inPlaceOf), fields.Type)
	data := l.Remove(types...)
	if len(data) != len(l.data) {
		var err error
		if others, err = Parse(data); err != nil {
			return nil, fmt.Errorf("the chain has no plugin besides %s: %w",
				strings.Join(types, ", "), err)
		}
	}
	return others.add(element), nil
}

// add returns the list's text with an additional element after the last one.
func (l *List) add(element json.RawMessage) []byte {
	last := l.Plugins[len(l.Plugins)-1]
	space := l.spaceBefore(len(l.Plugins) - 1)
	return slices.Concat(l.data[:last.end], []byte(","), space,
		formatLike(element, last.Raw, space), l.data[last.end:])
}

// Remove returns the list's text without the plugins of the types. It reverts [List.Insert] byte by
// byte, except that it does not restore elements that Insert has removed. If no plugin remains, the
// text is not a valid list.
func (l *List) Remove(types ...string) []byte {
	data, plugins := l.data, slices.Clone(l.Plugins)
	for i := len(plugins) - 1; i >= 0; i-- {
		if !slices.Contains(types, plugins[i].Type) {
			continue
		}
		from, to := plugins[i].start, plugins[i].end
		switch {
		case i > 0: // with the comma and the space before it
			from = plugins[i-1].end
		case len(plugins) > 1: // with the comma and the space after it
			to = plugins[1].start
		}
		data = slices.Concat(data[:from], data[to:])
		for j := i + 1; j < len(plugins); j++ {
			plugins[j].start -= to - from
			plugins[j].end -= to - from
		}
		plugins = slices.Delete(plugins, i, i+1)
	}
	return data
}
