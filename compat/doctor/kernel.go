package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// checkKernel reports which nf_tables features the kernel lacks.
func (d *diagnosis) checkKernel() {
	if d.FeaturesErr != nil {
		d.checkUnprobedKernel()
		return
	}
	lacksNeeded := false
	for _, s := range d.Features {
		summary := fmt.Sprintf("Linux %s lacks %s", d.Kernel, s.Feature.Name)
		switch {
		case s.Err == nil:
		case !s.Feature.IsNeededBy(&d.compiled):
			d.add("kernel", Note, summary+"; these parameters do not need it", "")
		case d.usesLegacy():
			lacksNeeded = true
			d.add("kernel", Note,
				summary+", which these parameters would need with nf_tables: iptables-legacy"+
					" captures without it", "")
		default:
			lacksNeeded = true
			d.addUncorrectable("kernel", summary+", which these parameters need", kernelWith(s.Feature))
		}
	}
	if !lacksNeeded {
		d.add("kernel", OK, fmt.Sprintf(
			"Linux %s supports the nf_tables features that these parameters need", d.Kernel), "")
	}
}

// kernelWith returns the remedy for a missing feature.
func kernelWith(f nft.Feature) string {
	return fmt.Sprintf("a kernel with %s (Linux %s or later)", f.Option, f.Since)
}

// runAsRoot is the remedy for missing privileges to probe the kernel.
const runAsRoot = "run rules doctor as root to determine the kernel's features"

// checkUnprobedKernel reports what the installed rules and the kernel's version show about the
// features. It is called if the features could not be probed.
func (d *diagnosis) checkUnprobedKernel() {
	newest := nft.FeatureNAT // every ruleset needs it, and no other feature is more recent
	switch {
	case d.Backend == compat.BackendLegacy: // needs no feature of nf_tables
	case d.sluiceTable() != nil:
		d.add("kernel", OK, fmt.Sprintf("Linux %s already holds rules of Sluice", d.Kernel), "")
	case !nft.IsNotPermitted(d.FeaturesErr):
		d.add("kernel", Warning,
			"cannot probe the kernel's features: "+d.FeaturesErr.Error(), "")
	case isOlder(d.Kernel, newest.Since):
		d.add("kernel", Warning,
			fmt.Sprintf("Linux %s is older than %s, the first version with %s; the kernel could not"+
				" be probed, which needs CAP_SYS_ADMIN", d.Kernel, newest.Since, newest.Name),
			runAsRoot)
	default:
		d.add("kernel", Note,
			fmt.Sprintf("the features of Linux %s could not be probed, which needs CAP_SYS_ADMIN;"+
				" its version is recent enough", d.Kernel), runAsRoot)
	}
}

// isOlder reports whether a kernel release precedes the version. It compares only the major and
// minor numbers, and returns false for an unknown format.
func isOlder(release, version string) bool {
	running, runningErr := parseVersion(release)
	other, otherErr := parseVersion(version)
	return runningErr == nil && otherErr == nil && slices.Compare(running, other) < 0
}

// parseVersion returns the major and minor numbers of a kernel version.
func parseVersion(version string) ([]int, error) {
	numbers := make([]int, 2)
	_, err := fmt.Sscanf(version, "%d.%d", &numbers[0], &numbers[1])
	return numbers, err
}

// checkPermission reports whether this process may read and write the namespace's rules.
func (d *diagnosis) checkPermission() {
	switch {
	case d.TablesErr == nil:
		d.add("permission", OK, "this process may read and write the namespace's rules", "")
	case nft.IsNotPermitted(d.TablesErr):
		d.addUncorrectable("permission",
			"this process may neither read nor write the namespace's rules: "+d.TablesErr.Error(),
			"run rules doctor with CAP_NET_ADMIN, in the user namespace that owns the network"+
				" namespace")
	case nft.IsNotSupported(d.TablesErr) && d.usesLegacy():
		d.add("kernel", Note, "the kernel has no nf_tables: "+d.TablesErr.Error(), "")
	case nft.IsNotSupported(d.TablesErr):
		d.addUncorrectable("kernel", "the kernel has no nf_tables: "+d.TablesErr.Error(),
			kernelWith(nft.FeatureTables))
	default:
		d.add("rules", Warning, "cannot read the namespace's rules: "+d.TablesErr.Error(), "")
	}
}

const lo = "lo"

// checkInterfaces reports interfaces that are down, and a namespace without addresses.
func (d *diagnosis) checkInterfaces() {
	if d.InterfacesErr != nil {
		d.add("interfaces", Warning,
			"cannot read the interfaces and routes: "+d.InterfacesErr.Error(), "")
		return
	}
	if len(d.Interrupted) > 0 {
		d.add("interfaces", Warning, fmt.Sprintf("these lists changed during each attempt to read "+
			"them, and may be incomplete: %s", strings.Join(d.Interrupted, ", ")),
			"run rules doctor again when they no longer change")
	}
	hasAddress := false
	isOnlyOnLo := len(d.podAddresses(rules.IPv4)) == 0 && slices.ContainsFunc(d.Interfaces, func(i Interface) bool {
		return i.Name == lo && slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool {
			return a.Is4() && a.IsGlobalUnicast()
		})
	})
	for _, i := range d.Interfaces {
		if isOnlyOnLo && i.Name != lo && i.Up {
			d.reportUnnumbered(i.Name)
		}
		if i.Name == lo && !i.Up {
			d.add("interfaces", Problem,
				"lo is down: redirected outbound connections use lo and fail",
				"ip link set lo up")
		}
		own := slices.DeleteFunc(slices.Clone(i.Addrs), func(a netip.Addr) bool {
			return i.Name == lo || !a.IsGlobalUnicast() || a == rules.PassthroughIPv6()
		})
		if len(own) > 0 && !i.Up {
			severity := Note // other interfaces have addresses of the same families
			if slices.ContainsFunc(own, func(a netip.Addr) bool {
				return len(d.podAddresses(rules.FamilyOf(a))) == 0
			}) {
				severity = Problem
			}
			d.add("interfaces", severity, fmt.Sprintf("%s has the address %s, but is down: connections through this"+
				" interface fail", i.Name, own[0]), "ip link set "+i.Name+" up, and add its routes again")
		}
		hasAddress = hasAddress || len(own) > 0
	}
	if !hasAddress && len(d.Interrupted) == 0 {
		d.add("interfaces", Warning, "no interface except lo has an address: this is not the"+
			" namespace of a pod, or the pod's network is not set up yet", "")
	}
}

// loIPv6Setting is the sysctl that disables IPv6 for lo.
const loIPv6Setting = "net.ipv6.conf.lo.disable_ipv6"

// checkIPv6 reports that IPv6 is missing or disabled if the parameters capture it, and an IPv6
// address of the pod if they do not.
func (d *diagnosis) checkIPv6() {
	disabled, exists := d.Settings[loIPv6Setting]
	needed := "::6, the proxy's source address for connections to the application,"
	omit, capture := "omit --dual-stack, or specify only the pod's IPv4 address", "--dual-stack"
	if d.ambient != nil {
		needed = "the policy route for replies to ztunnel"
		omit, capture = "set --ambient-ipv6=false", "--ambient-ipv6"
	}
	switch {
	case d.SettingsErr != nil:
	case d.redirect.IPv6 && !exists:
		d.addUncorrectable("kernel", "the kernel has no IPv6, which these parameters capture", omit)
	case d.redirect.IPv6 && disabled != "0":
		d.add("settings", Problem,
			fmt.Sprintf("IPv6 is disabled for lo: %s cannot be added", needed),
			"sysctl -w net.ipv6.conf.lo.disable_ipv6=0")
	}
	switch {
	case d.redirect.IPv6:
		d.checkDisabledIPv6()
		return
	case d.IPv6Bypass != "":
		d.add("interfaces", Problem, "IPv6 is not captured: "+d.IPv6Bypass, "create the pod again")
		return
	case d.IPv6Unknown != "":
		d.add("interfaces", Warning,
			"it is unknown whether IPv6 traffic bypasses the proxy: "+d.IPv6Unknown, "")
	}
	for _, i := range d.Interfaces {
		for _, a := range i.Addrs {
			if i.Name != lo && rules.FamilyOf(a) == rules.IPv6 && a.IsGlobalUnicast() &&
				a != rules.PassthroughIPv6() {
				d.add("interfaces", Warning,
					fmt.Sprintf("%s has the address %s, but these parameters do not capture IPv6:"+
						" IPv6 traffic bypasses the proxy", i.Name, a), capture+" captures IPv6")
				return
			}
		}
	}
}

// checkDisabledIPv6 reports an interface of the pod for which IPv6 is disabled. The kernel then has
// removed its IPv6 addresses.
func (d *diagnosis) checkDisabledIPv6() {
	if len(d.podAddresses(rules.IPv6)) > 0 {
		return // another interface is the pod's interface for IPv6
	}
	for _, i := range d.Interfaces {
		setting := "net.ipv6.conf." + i.Name + ".disable_ipv6"
		if value := d.Settings[setting]; i.Name != lo && len(i.Addrs) > 0 && value != "" && value != "0" {
			d.add("settings", Problem,
				fmt.Sprintf("these parameters capture IPv6, but IPv6 is disabled for %s, and no interface has an IPv6"+
					" address of the pod: IPv6 connections fail", i.Name),
				"sysctl -w "+setting+"=0, and add the address and routes again")
		}
	}
}
