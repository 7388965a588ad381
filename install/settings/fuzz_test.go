package settings_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/install/settings"
)

// FuzzAcceptedValues checks that the typed accessors support every value that Read accepts.
func FuzzAcceptedValues(f *testing.F) {
	for _, s := range settings.All() {
		f.Add(s.Default)
		f.Add(s.Example)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range settings.All() {
			values, err := settings.Read(lookup(map[string]string{s.Env: value}))
			if err != nil {
				continue
			}
			switch s.Kind.Want {
			case settings.Bool.Want:
				values.Bool(s.Env)
			case settings.ExitCode.Want, settings.PodCount.Want, settings.Port.Want,
				settings.OptionalPort.Want:
				if n := values.Int(s.Env); n < 0 || n > 65535 {
					t.Errorf("%s: %q is %d, want 0 to 65535", s.Env, value, n)
				}
			case settings.Duration.Want, settings.PluginTime.Want:
				if d := values.Duration(s.Env); d <= 0 {
					t.Errorf("%s: %q is %s, want a positive duration", s.Env, value, d)
				}
			case settings.Mode.Want:
				if m := values.Mode(s.Env); m&0o7007 != 0 {
					t.Errorf("%s: %q is the mode %o, want no permissions for others", s.Env, value, m)
				}
			case settings.Names.Want:
				for _, n := range values.Names(s.Env) {
					if n == "" {
						t.Errorf("%s: %q has an empty name", s.Env, value)
					}
				}
			default:
				values.Text(s.Env)
			}
		}
	})
}
