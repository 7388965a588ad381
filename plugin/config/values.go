package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/log/options"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// Descriptions of allowed values, for several fields of [Config].
const (
	nameWant = "a Kubernetes name: 1 to 63 characters of a-z, 0-9, - and .," +
		" with a letter or digit at both ends"
	namesWant = "a list of Kubernetes names: 1 to 63 characters of a-z, 0-9, - and .," +
		" with a letter or digit at both ends"
	durationWant = "a duration from 100ms to 2m"
	levelWant    = options.LevelWant

	selectorsWant = "a list of objects with podSelector and namespaceSelector," +
		" each a label selector of Kubernetes"
)

const (
	minDuration = 100 * time.Millisecond
	// maxDuration is the kubelet's default runtimeRequestTimeout. The kubelet gives a runtime twice
	// this time to create a sandbox.
	maxDuration = 2 * time.Minute
)

// A setter sets a field from its JSON value, and returns the invalid parts: the value, or elements
// of it. It does not store the invalid parts. Functions of this file such as path and duration
// return setters for values of one type; their parameter field returns the address of the field.
type setter = func(c *Config, raw json.RawMessage) (wrong []string)

// decode decodes a JSON value. Unknown fields of objects are not allowed.
func decode[T any](raw json.RawMessage) (value T, wrong []string) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&value)
	if err == nil {
		// The text of an environment variable, which [Field.Allows] checks, may continue after the
		// value.
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return value, nil
		}
	}
	return value, []string{string(raw)}
}

// parsed returns a setter of a value that parse derives from a string. parse returns false if the
// string is not allowed. An empty string counts as missing.
func parsed[T any](field func(*Config) *T, parse func(string) (T, bool)) setter {
	return func(c *Config, raw json.RawMessage) []string {
		text, wrong := decode[string](raw)
		if wrong != nil || text == "" {
			return wrong
		}
		value, ok := parse(text)
		if !ok {
			return []string{string(raw)}
		}
		*field(c) = value
		return nil
	}
}

// path returns a setter of an absolute path.
func path(field func(*Config) *string) setter {
	return parsed(field, func(text string) (string, bool) {
		return text, filepath.IsAbs(text) && !strings.ContainsRune(text, 0)
	})
}

// setLogFile sets the path of the log file. Unlike for other paths, an empty string does not count
// as missing: it disables the file.
func setLogFile(c *Config, raw json.RawMessage) []string {
	c.Log.File = ""
	return path(func(c *Config) *string { return &c.Log.File })(c, raw)
}

// name returns a setter of a Kubernetes name.
func name(field func(*Config) *string) setter {
	return parsed(field, func(text string) (string, bool) { return text, isName(text) })
}

// names returns a setter of a list of Kubernetes names.
func names(field func(*Config) *[]string) setter {
	return func(c *Config, raw json.RawMessage) []string {
		list, wrong := decode[[]string](raw)
		if wrong != nil {
			return wrong
		}
		valid := list[:0]
		for _, element := range list {
			if isName(element) {
				valid = append(valid, element)
			} else {
				wrong = append(wrong, strconv.Quote(element))
			}
		}
		*field(c) = valid
		return wrong
	}
}

// isName reports whether the value is the name of a namespace or a container in Kubernetes (an RFC
// 1123 label). It also accepts dots, which names of other objects may contain.
func isName(value string) bool {
	for i, c := range []byte(value) {
		isInner := i > 0 && i < len(value)-1
		isAlphanumeric := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !isAlphanumeric && (!isInner || c != '-' && c != '.') {
			return false
		}
	}
	return value != "" && len(value) <= 63
}

// policy returns a setter of the policy for pods that cannot be read.
func policy(field func(*Config) *Policy) setter {
	return parsed(field, func(text string) (Policy, bool) {
		return Policy(text), text == string(Fail) || text == string(Skip)
	})
}

// duration returns a setter of a duration from minDuration to maxDuration.
func duration(field func(*Config) *time.Duration) setter {
	return func(c *Config, raw json.RawMessage) []string {
		value, wrong := decode[string](raw)
		d, err := time.ParseDuration(value)
		if wrong != nil || err != nil || d < minDuration || d > maxDuration {
			return []string{string(raw)}
		}
		*field(c) = d
		return nil
	}
}

// number returns a setter of an integer from minimum to maximum.
func number(field func(*Config) *int, minimum, maximum int) setter {
	return func(c *Config, raw json.RawMessage) []string {
		n, wrong := decode[int](raw)
		if wrong != nil || n < minimum || n > maximum {
			return []string{string(raw)}
		}
		*field(c) = n
		return nil
	}
}

// selectors returns a setter of a list of selectors.
func selectors(field func(*Config) *[]decide.Selector) setter {
	return func(c *Config, raw json.RawMessage) []string {
		list, wrong := decode[[]decide.Selector](raw)
		if wrong != nil {
			return wrong
		}
		valid := list[:0]
		for i, s := range list {
			if err := s.Validate(); err != nil {
				wrong = append(wrong, fmt.Sprintf("element %d (%v)", i, err))
			} else {
				valid = append(valid, s)
			}
		}
		*field(c) = valid
		return wrong
	}
}

// setAmbient adds the default settings of ambient mode, which other fields may change. Config.set
// removes the settings unless the value is true.
func setAmbient(c *Config, raw json.RawMessage) []string {
	ensureAmbient(c)
	_, wrong := decode[bool](raw)
	return wrong
}

// ensureAmbient returns the settings of ambient mode. It adds the default settings if there are
// none.
func ensureAmbient(c *Config) *decide.AmbientSettings {
	if c.Decide.Ambient == nil {
		ambient := decide.DefaultAmbientSettings()
		c.Decide.Ambient = &ambient
	}
	return c.Decide.Ambient
}

// boolean returns a setter of true or false.
func boolean(field func(*Config) *bool) setter {
	return func(c *Config, raw json.RawMessage) []string {
		value, wrong := decode[bool](raw)
		if wrong == nil {
			*field(c) = value
		}
		return wrong
	}
}

// address returns a setter of an address for which isAllowed returns true.
func address(isAllowed func(netip.Addr) bool, field func(*Config) *netip.Addr) setter {
	return parsed(field, func(text string) (netip.Addr, bool) {
		a, err := netip.ParseAddr(text)
		return a, err == nil && isAllowed(a)
	})
}

// fromParameter returns the field for a parameter of package parameter. A value is a Boolean, a
// list of strings or a string. An empty string counts as missing.
func fromParameter(name string, store func(*Config, *parameter.Values)) Field {
	p := parameter.OfConfig(name)
	set := func(c *Config, raw json.RawMessage) []string {
		texts, wrong := valueTexts(p, raw)
		if wrong != nil {
			return wrong
		}
		var v parameter.Values
		valid := 0
		for _, text := range texts {
			if p.Set(&v, text, parameter.Names{}) != nil {
				wrong = append(wrong, strconv.Quote(text))
			} else {
				valid++
			}
		}
		if valid > 0 {
			store(c, &v)
		}
		return wrong
	}
	return Field{name, p.Kind.Allowed(), p.DefaultText(), p.Help, set}
}

// valueTexts returns the elements of a value as strings for [parameter.Parameter.Set].
func valueTexts(p *parameter.Parameter, raw json.RawMessage) (texts, wrong []string) {
	if p.Repeat {
		return decode[[]string](raw)
	}
	if p.Kind == parameter.Bool {
		value, wrong := decode[bool](raw)
		return []string{strconv.FormatBool(value)}, wrong
	}
	value, wrong := decode[string](raw)
	if value == "" {
		return nil, wrong
	}
	return []string{value}, wrong
}

// level returns a setter of the log level.
func level(field func(*Config) *options.Level) setter {
	return parsed(field, func(text string) (options.Level, bool) {
		parsed, err := options.ParseLevel(text)
		return parsed, err == nil
	})
}
