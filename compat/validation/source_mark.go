package validation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// checkSourceMark checks the sysctl src_valid_mark, which breaks TPROXY if it is 1. A probe from
// within the namespace succeeds even then, because the kernel does not look up the route to the
// source of packets that arrive over lo.
func (v *validator) checkSourceMark() []Check {
	if v.options.Redirect.Mode != rules.ModeTProxy {
		return nil
	}
	var enabled []string
	readable := 0
	_ = v.ns.Do(func() error {
		files, err := filepath.Glob("/proc/sys/net/ipv4/conf/*/src_valid_mark")
		for _, file := range files {
			value, readErr := os.ReadFile(file)
			if readErr != nil {
				continue
			}
			readable++
			if strings.TrimSpace(string(value)) != "0" {
				enabled = append(enabled, filepath.Base(filepath.Dir(file)))
			}
		}
		return err
	})
	return []Check{sourceMarkResult(readable, enabled)}
}

// sourceMarkResult returns the check. readable is the number of sysctls that could be read, and
// enabled contains the names of the sysctls with the value 1: names of interfaces, "all" and
// "default".
func sourceMarkResult(readable int, enabled []string) Check {
	// "default" applies only to new interfaces.
	enabled = slices.DeleteFunc(slices.Clone(enabled), func(name string) bool {
		return name == "default"
	})
	c := Check{
		Name: "source check", Kind: Settings, Expected: "net.ipv4.conf.*.src_valid_mark is 0",
		Status: NotChecked,
	}
	switch {
	case readable == 0:
		c.Reason = "/proc/sys/net/ipv4/conf cannot be read"
	case len(enabled) == 0:
		c.Status, c.Found = OK, "it is 0"
	default:
		c.Status, c.Found = Failed, "it is 1 for "+strings.Join(enabled, ", ")
		c.Reason = "the kernel then routes the source of an inbound packet with TPROXY's mark," +
			" considers it local, and drops the packet"
		c.Next = compat.ClearSourceMarkCommand(enabled)
	}
	return c
}
