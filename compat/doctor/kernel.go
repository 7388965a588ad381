package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// checkKernel reports the kernel's features.
func (d *diagnosis) checkKernel() {
	if d.FeaturesErr != nil {
		d.checkUnprobedKernel()
		return
	}
	lacking := false
	for _, s := range d.Features {
		if s.Err == nil {
			continue
		}
		need := fmt.Sprintf("a kernel with %s (Linux %s or later)", s.Feature.Option,
			s.Feature.Since)
		if d.needs(s.Feature) {
			lacking = true
			verdict := fmt.Sprintf("Linux %s lacks %s, which these parameters need", d.Kernel,
				s.Feature.Name)
			if d.usesLegacy() {
				d.add("kernel", Note, verdict+" of nf_tables", "")
				continue
			}
			d.addPrevented("kernel", verdict, need)
		} else {
			d.add("kernel", Note,
				fmt.Sprintf("Linux %s lacks %s; these parameters do not need it", d.Kernel,
					s.Feature.Name), "")
		}
	}
	if !lacking {
		d.add("kernel", OK,
			fmt.Sprintf("Linux %s supports the nf_tables features that these parameters need", d.Kernel), "")
	}
}

// needs reports whether the parameters need a feature.
func (d *diagnosis) needs(f nft.Feature) bool {
	r := &d.redirect
	switch f {
	case nft.FeatureTProxy:
		return d.tproxy()
	case nft.FeatureRoute:
		return d.markedRoute().used
	case nft.FeatureZone:
		return d.tproxy() || r.DropInvalid || r.DNS.Capture
	case nft.FeatureInterval:
		for _, t := range d.compiled.Tables {
			if len(t.Sets()) > 0 {
				return true
			}
		}
		return false
	}
	return true
}

// checkUnprobedKernel reports features that follow from other facts if probing was not possible.
func (d *diagnosis) checkUnprobedKernel() {
	needed := nft.FeatureNAT
	switch {
	case d.Backend == compat.BackendLegacy:
	case d.sluiceTable() != nil:
		d.add("kernel", OK, fmt.Sprintf("Linux %s already holds rules of Sluice", d.Kernel), "")
	case !nft.IsNotPermitted(d.FeaturesErr):
		d.add("kernel", Warning,
			"cannot probe the kernel's features: "+d.FeaturesErr.Error(), "")
	case older(d.Kernel, needed.Since):
		d.add("kernel", Warning,
			fmt.Sprintf("Linux %s is older than %s, the first version with %s; the kernel could not be probed, which needs CAP_SYS_ADMIN",
				d.Kernel, needed.Since,
				needed.Name), "run rules doctor as root to determine the kernel's features")
	default:
		d.add("kernel", Note,
			fmt.Sprintf("the features of Linux %s could not be determined, which needs CAP_SYS_ADMIN; its version is recent "+
				"enough", d.Kernel), "run rules doctor as root to determine the kernel's features")
	}
}

// older reports whether a release precedes "major.minor". The result for an unknown format is
// false.
func older(release, version string) bool {
	var have, want [2]int
	for i, text := range strings.SplitN(version, ".", 3) {
		if i < 2 {
			want[i], _ = strconv.Atoi(text)
		}
	}
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return false
	}
	return have[0] < want[0] || have[0] == want[0] && have[1] < want[1]
}

// checkPermission reports whether this process may program the namespace.
func (d *diagnosis) checkPermission() {
	switch {
	case d.TablesErr == nil:
		d.add("permission", OK, "this process may read and write the namespace's rules", "")
	case nft.IsNotPermitted(d.TablesErr):
		d.addPrevented("permission", "this process may neither read nor write the namespace's rules",
			"run it with CAP_NET_ADMIN, in the user namespace that owns the network namespace")
	case nft.IsNotSupported(d.TablesErr) && d.usesLegacy():
		d.add("kernel", Note, "the kernel has no nf_tables: "+d.TablesErr.Error(), "")
	case nft.IsNotSupported(d.TablesErr):
		d.addPrevented("kernel", "the kernel has no nf_tables: "+d.TablesErr.Error(),
			fmt.Sprintf("a kernel with %s (Linux %s or later)", nft.FeatureTables.Option,
				nft.FeatureTables.Since))
	default:
		d.add("rules", Warning, "cannot read the namespace's rules: "+d.TablesErr.Error(), "")
	}
}

// checkInterfaces reports links and addresses.
func (d *diagnosis) checkInterfaces() {
	if d.InterfacesErr != nil {
		d.add("interfaces", Warning,
			"cannot read the interfaces and routes: "+d.InterfacesErr.Error(), "")
		return
	}
	addressed := false
	for _, i := range d.Interfaces {
		if i.Name == lo && !i.Up {
			d.add("interfaces", Problem,
				"lo is down: redirected outbound connections use lo and fail",
				"ip link set lo up")
		}
		for _, a := range i.Addrs {
			addressed = addressed || i.Name != lo && a.IsGlobalUnicast()
		}
	}
	if !addressed {
		d.add("interfaces", Warning,
			"no interface except lo has an address: this is not the namespace of a pod, or the pod's network is not set up yet", "")
	}
}

const lo = "lo"

// checkIPv6 reports whether the state of IPv6 agrees with the parameters.
func (d *diagnosis) checkIPv6() {
	disabled, known := d.setting("net.ipv6.conf.lo.disable_ipv6")
	switch {
	case d.SettingsErr != nil:
	case d.redirect.IPv6 && !known:
		d.addPrevented("kernel", "the kernel has no IPv6, which these parameters capture",
			"omit --dual-stack, or specify only the pod's IPv4 address")
	case d.redirect.IPv6 && disabled != "0":
		d.add("settings", Problem,
			"IPv6 is disabled for lo: ::6, the proxy's source address for connections to the application, cannot be added",
			"sysctl -w net.ipv6.conf.lo.disable_ipv6=0")
	}
	if d.redirect.IPv6 {
		return
	}
	for _, i := range d.Interfaces {
		for _, a := range i.Addrs {
			if i.Name != lo && rules.FamilyOf(a) == rules.IPv6 && a.IsGlobalUnicast() &&
				a != rules.PassthroughIPv6() {
				d.add("interfaces", Warning,
					fmt.Sprintf("%s has the address %s, but these parameters do not capture IPv6: it bypasses the proxy",
						i.Name, a), "--dual-stack captures it")
				return
			}
		}
	}
}
