package settings

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/log/options"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// A Kind is a set of allowed values.
type Kind struct {
	// Want describes the allowed values in errors and manuals.
	Want string
	// Words contains the allowed values if there are few, and otherwise is nil. Allows may accept
	// other spellings of these values, such as 1 for true.
	Words   []string
	allowed func(string) bool // for a value that is not empty
}

// Allows reports whether the kind allows a value. It never allows an empty value, which means
// unset.
func (k Kind) Allows(value string) bool { return value != "" && k.allowed(value) }

// SelectableFields are the fields of pods that a [FieldSelector] may contain.
var SelectableFields = []string{
	"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName",
	"spec.hostNetwork", "status.phase", "status.podIP",
}

// The kinds.
var (
	Text         = Kind{"any text", nil, func(string) bool { return true }}
	Bool         = Kind{"true or false", []string{"true", "false"}, parses(strconv.ParseBool)}
	ExitCode     = Kind{"a number from 0 to 255", nil, func(v string) bool { return isAtMost(v, 255) }}
	PodCount     = Kind{"a number from 1 to 1000", nil, isPodCount}
	Port         = Kind{"a port from 1 to 65535", nil, parses(rules.ParsePort)}
	OptionalPort = Kind{"a port, or 0 to disable it", nil, parses(rules.ParseOptionalPort)}
	Duration     = Kind{"a duration from 100ms to 24h, such as 90s or 5m", nil, isDuration}
	PluginTime   = ofField("api_budget", encodeString)
	Path         = Kind{"an absolute path", nil, filepath.IsAbs}
	FileName     = Kind{
		"a file name without a directory that ends in .conf or .conflist", nil, isFileName,
	}
	ListName = Kind{"a file name without a directory that ends in .conflist", nil, isListName}
	Mode     = Kind{
		"an octal mode with which the owner may read and others have no permissions, such as 0600",
		nil, isMode,
	}
	Names         = ofField("exclude_namespaces", encodeList).withSyntax("comma-separated: ")
	JSONList      = ofField("enablement_selectors", rawJSON).withSyntax("JSON: ")
	TaintKey      = Kind{"the key of a taint, such as cni.istio.io/not-ready", nil, isQualified}
	QualifiedName = Kind{"a qualified name, such as example.com/name", nil, isQualified}
	LabelValue    = Kind{
		"at most 63 letters, digits, -, _ and ., with a letter or digit at both ends",
		nil, isLabelValue,
	}
	ContainerName = ofField("validation_container", encodeString)
	LabelSelector = Kind{"a label selector, such as tier=web", nil, isLabelSelector}
	FieldSelector = Kind{
		"a field selector, such as metadata.namespace=web, with the fields " +
			strings.Join(SelectableFields, ", "),
		nil, isFieldSelector,
	}
	CounterMetrics = oneOf("none", "namespace", "pod")
	Unreadable     = ofField(
		"unreadable_pods", encodeString, string(config.Fail), string(config.Skip))
	Level = ofField("plugin_log_level", encodeString, options.LevelNames()...)
)

// ofField returns the kind of a field of the plugin's configuration. encode converts the text of
// the variable to the JSON value of the field. words are the allowed values if there are few.
func ofField(name string, encode func(string) json.RawMessage, words ...string) Kind {
	field := config.FieldNamed(name)
	return Kind{field.Want, words, func(v string) bool { return field.Allows(encode(v)) }}
}

// oneOf returns the kind that allows only these values.
func oneOf(values ...string) Kind {
	last := len(values) - 1
	return Kind{
		strings.Join(values[:last], ", ") + " or " + values[last], values,
		func(v string) bool { return slices.Contains(values, v) },
	}
}

// withSyntax returns the kind with a description of the syntax before the description of the
// allowed values.
func (k Kind) withSyntax(syntax string) Kind {
	k.Want = syntax + k.Want
	return k
}

func encodeString(v string) json.RawMessage { return marshal(v) }

func encodeList(v string) json.RawMessage { return marshal(strings.Split(v, ",")) }

func rawJSON(v string) json.RawMessage { return json.RawMessage(v) }

func marshal(value any) json.RawMessage { return must(json.Marshal(value)) }

// kindOf returns the kind of a parameter of package rules/parameter. Commas separate the
// elements of a list.
func kindOf(p *parameter.Parameter) Kind {
	return Kind{p.Kind.Allowed(), p.Kind.Words(), func(v string) bool {
		elements := []string{v}
		if p.Repeat {
			elements = strings.Split(v, ",")
		}
		for _, element := range elements {
			if p.Set(new(parameter.Values), element, parameter.Names{}) != nil {
				return false
			}
		}
		return true
	}}
}

// parses returns a function that reports whether parse accepts a value.
func parses[T any](parse func(string) (T, error)) func(string) bool {
	return func(v string) bool {
		_, err := parse(v)
		return err == nil
	}
}

func isPodCount(v string) bool { return isAtMost(v, 1000) && strings.Trim(v, "0") != "" }

func isAtMost(v string, limit uint64) bool {
	n, err := strconv.ParseUint(v, 10, 32)
	return err == nil && n <= limit
}

// isDuration reports whether the value is a duration in the allowed range. Timers that are shorter
// than the minimum would keep a processor busy.
func isDuration(v string) bool {
	d, err := time.ParseDuration(v)
	return err == nil && d >= 100*time.Millisecond && d <= 24*time.Hour
}

// isFileName reports whether the value is the name of a configuration file without a directory.
func isFileName(v string) bool {
	extension := filepath.Ext(v)
	return filepath.Base(v) == v && v != extension &&
		(extension == ".conf" || extension == ".conflist")
}

func isListName(v string) bool { return isFileName(v) && filepath.Ext(v) == ".conflist" }

// isMode reports whether the value is an octal mode with which the owner may read. Permissions for
// others, and the set-ID and sticky bits, are not allowed.
func isMode(v string) bool {
	mode, err := strconv.ParseUint(v, 8, 32)
	return err == nil && mode&0o7007 == 0 && mode&0o400 != 0 && mode <= 0o770
}

func isQualified(v string) bool { return len(validation.IsQualifiedName(v)) == 0 }

func isLabelValue(v string) bool { return len(validation.IsValidLabelValue(v)) == 0 }

func isLabelSelector(v string) bool {
	_, err := labels.Parse(v)
	return err == nil
}

// isFieldSelector reports whether the value is a field selector that contains only
// SelectableFields. A selector would treat any other field as empty.
func isFieldSelector(v string) bool {
	s, err := fields.ParseSelector(v)
	return err == nil && !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool {
		return !slices.Contains(SelectableFields, r.Field)
	})
}
