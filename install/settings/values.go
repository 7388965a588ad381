package settings

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Values contains the text of each setting, including defaults. All texts are valid if [Read]
// returned no error. The methods panic if Values does not contain the setting, or if the text of
// the setting cannot be parsed as the type of the result.
type Values map[string]string

// Read reads the settings from an environment. lookup looks up a variable. The error names each
// value that is not allowed, each missing required setting, and each variable in [Refused] that is
// set.
func Read(lookup func(name string) (string, bool)) (Values, error) {
	values := Values{}
	var errs []error
	for _, s := range All() {
		value, _ := lookup(s.Env)
		value = strings.TrimSpace(value)
		switch {
		case value == "" && s.Required:
			errs = append(errs,
				fmt.Errorf("environment variable %s: not set; must be the %s", s.Env, s.Help))
		case value == "":
			values[s.Env] = s.Default
		case !s.Kind.Allows(value):
			errs = append(errs,
				fmt.Errorf("environment variable %s: %q: must be %s", s.Env, value, s.Kind.Want))
		default:
			values[s.Env] = value
		}
	}
	for _, r := range Refused() {
		if value, set := lookup(r.Env); set && value != "" {
			errs = append(errs, fmt.Errorf("environment variable %s %s", r.Env, r.Reason))
		}
	}
	return values, errors.Join(errs...)
}

// Text returns the text of a setting.
func (v Values) Text(env string) string {
	value, known := v[env]
	if !known {
		panic("settings: no setting " + env)
	}
	return value
}

// Bool returns a setting of the kind [Bool].
func (v Values) Bool(env string) bool { return must(strconv.ParseBool(v.Text(env))) }

// Int returns a setting of the kind [ExitCode], [PodCount], [Port] or [OptionalPort].
func (v Values) Int(env string) int { return must(strconv.Atoi(v.Text(env))) }

// Duration returns a setting of the kind [Duration] or [PluginTime].
func (v Values) Duration(env string) time.Duration { return must(time.ParseDuration(v.Text(env))) }

// Mode returns a setting of the kind [Mode].
func (v Values) Mode(env string) uint32 {
	return uint32(must(strconv.ParseUint(v.Text(env), 8, 32)))
}

// Names returns a setting of the kind [Names]; nil if it is empty.
func (v Values) Names(env string) []string {
	if v.Text(env) == "" {
		return nil
	}
	return strings.Split(v.Text(env), ",")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic("settings: a setting of another kind: " + err.Error())
	}
	return value
}
